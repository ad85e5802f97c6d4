import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Transactional producers, and what an administrator sees and does of them. */
final class Transactions {
    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new ConcurrentHashMap<>();

    Transactions(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    JsonNode perform(String operation, JsonNode request) throws Exception {
        if (operation.equals("txn_open")) {
            producers.put(request.get("name").asText(), open(request));
            return Conformance.JSON.nullNode();
        }
        if (operation.equals("txn_copy")) {
            return Conformance.JSON.getNodeFactory().booleanNode(
                    new Copying(bootstrap, request, open(request)).run());
        }
        if (operation.startsWith("txn_admin_")) {
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                return administer(admin, operation, request);
            }
        }
        KafkaProducer<byte[], byte[]> producer = producers.get(request.get("name").asText());
        switch (operation) {
            case "txn_init": producer.initTransactions(); break;
            case "txn_begin": producer.beginTransaction(); break;
            case "txn_send":
                producer.send(new ProducerRecord<>(
                        request.get("topic").asText(), request.get("partition").asInt(), null,
                        Base64.getDecoder().decode(request.get("value").asText())));
                break;
            case "txn_flush": producer.flush(); break;
            case "txn_commit": producer.commitTransaction(); break;
            case "txn_abort": producer.abortTransaction(); break;
            case "txn_offsets":
                producer.sendOffsetsToTransaction(
                        Map.of(Conformance.partition(request),
                                new OffsetAndMetadata(request.get("offset").asLong())),
                        new ConsumerGroupMetadata(request.get("group").asText()));
                break;
            case "txn_close": producer.close(Duration.ZERO); break;
            default: throw new IllegalArgumentException(operation);
        }
        return Conformance.JSON.nullNode();
    }

    private KafkaProducer<byte[], byte[]> open(JsonNode request) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", request.path("bootstrap").asText(bootstrap));
        settings.put("transactional.id", request.get("transactional_id").asText());
        settings.put("transaction.timeout.ms", request.get("timeout_ms").asText());
        settings.put("max.block.ms", "20000");
        settings.put("retry.backoff.ms", "20");
        settings.put("reconnect.backoff.ms", "10");
        settings.put("reconnect.backoff.max.ms", "100");
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private JsonNode administer(Admin admin, String operation, JsonNode request) throws Exception {
        switch (operation) {
            case "txn_admin_list": {
                ArrayNode names = Conformance.JSON.createArrayNode();
                admin.listTransactions().all().get().forEach(one -> names.add(one.transactionalId()));
                return names;
            }
            case "txn_admin_describe": {
                String id = request.get("transactional_id").asText();
                TransactionDescription found =
                        admin.describeTransactions(List.of(id)).description(id).get();
                ObjectNode answer = Conformance.JSON.createObjectNode();
                answer.put("state", found.state().toString()).put("producer_id", found.producerId());
                answer.put("partitions", found.topicPartitions().size());
                return answer;
            }
            case "txn_admin_abort": {
                TopicPartition partition = Conformance.partition(request);
                ProducerState open = admin.describeProducers(List.of(partition))
                        .partitionResult(partition).get().activeProducers().stream()
                        .filter(one -> one.currentTransactionStartOffset().isPresent())
                        .findFirst().orElseThrow();
                admin.abortTransaction(new AbortTransactionSpec(
                        partition, open.producerId(), (short) open.producerEpoch(),
                        open.coordinatorEpoch().orElse(0))).all().get();
                return Conformance.JSON.nullNode();
            }
            case "txn_admin_fence":
                admin.fenceProducers(List.of(request.get("transactional_id").asText())).all().get();
                return Conformance.JSON.nullNode();
            default: throw new IllegalArgumentException(operation);
        }
    }
}
