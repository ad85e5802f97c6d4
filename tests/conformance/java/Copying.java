import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Consume, transform, produce: what was consumed is committed with what was made of it. */
final class Copying {
    private static final Duration POLL = Duration.ofMillis(500);
    private static final long PATIENCE_NS = 60_000_000_000L;

    private final JsonNode request;
    private final String source;
    private final String target;
    private final KafkaProducer<byte[], byte[]> producer;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Map<TopicPartition, OffsetAndMetadata> committed = new HashMap<>();

    Copying(String bootstrap, JsonNode request, KafkaProducer<byte[], byte[]> producer) {
        this.request = request;
        this.source = request.get("source").asText();
        this.target = request.get("target").asText();
        this.producer = producer;
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", request.get("group").asText());
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "7");
        this.consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Whether all `count` records are done; false if the program "crashed" in its transaction `crash`. */
    boolean run() {
        try (consumer) {
            producer.initTransactions();
            Set<TopicPartition> partitions = consumer.partitionsFor(source).stream()
                    .map(one -> new TopicPartition(source, one.partition()))
                    .collect(Collectors.toSet());
            consumer.committed(partitions).forEach((partition, offset) -> {
                if (offset != null) committed.put(partition, offset);
            });
            consumer.subscribe(List.of(source));
            return copy();
        } finally {
            producer.close(Duration.ZERO);
        }
    }

    private boolean copy() {
        long deadline = System.nanoTime() + PATIENCE_NS;
        int transactions = 0;
        while (done() < request.get("count").asLong()) {
            if (System.nanoTime() > deadline) throw new IllegalStateException("copied " + done());
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
            if (records.isEmpty()) continue;
            transactions++;
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> offsets = make(records);
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            if (transactions == request.path("crash").asInt()) {
                producer.flush();
                return false;
            }
            if (transactions == request.path("abort").asInt()) {
                producer.abortTransaction();
                records.partitions().forEach(this::goBack);
            } else {
                producer.commitTransaction();
                committed.putAll(offsets);
            }
        }
        return true;
    }

    private Map<TopicPartition, OffsetAndMetadata> make(ConsumerRecords<byte[], byte[]> records) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            byte[] made = ("made of " + new String(record.value())).getBytes();
            producer.send(new ProducerRecord<>(target, record.partition(), null, made));
            offsets.put(new TopicPartition(source, record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
        }
        return offsets;
    }

    private void goBack(TopicPartition partition) {
        OffsetAndMetadata last = committed.get(partition);
        consumer.seek(partition, last == null ? 0 : last.offset());
    }

    private long done() {
        return committed.values().stream().mapToLong(OffsetAndMetadata::offset).sum();
    }
}
