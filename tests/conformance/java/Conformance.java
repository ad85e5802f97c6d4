import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Runs Apache Kafka's Java client: reads one request per line as JSON from standard input. */
public final class Conformance {
    static final ObjectMapper JSON = new ObjectMapper();
    private static final Base64.Encoder ENCODE = Base64.getEncoder();
    private static final Base64.Decoder DECODE = Base64.getDecoder();

    /** A consumer with its own thread, because KafkaConsumer is not thread-safe. */
    private record Handle(KafkaConsumer<byte[], byte[]> consumer, ExecutorService thread) {}

    private final String bootstrap;
    private final Admins admins;
    private final Transactions transactions;
    private final Map<String, Handle> handles = new ConcurrentHashMap<>();
    private final ExecutorService workers = Executors.newCachedThreadPool();

    private Conformance(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admins = new Admins(bootstrap);
        this.transactions = new Transactions(bootstrap);
    }

    public static void main(String[] arguments) throws Exception {
        Conformance program = new Conformance(arguments[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            program.accept(JSON.readTree(line));
        }
        System.exit(0);
    }

    private void accept(JsonNode request) {
        Handle handle = request.has("handle") ? handles.get(request.get("handle").asText()) : null;
        ExecutorService thread = handle == null ? workers : handle.thread();
        thread.execute(() -> {
            ObjectNode answer = JSON.createObjectNode().put("id", request.get("id").asLong());
            try {
                answer.set("ok", perform(request, handle));
            } catch (Throwable error) {
                Throwable cause = error;
                while (cause.getCause() != null
                        && (cause instanceof ExecutionException || cause instanceof CompletionException)) {
                    cause = cause.getCause();
                }
                short code = Errors.forException(cause).code();
                answer.put("code", code).put("error", cause.toString());
            }
            synchronized (System.out) {
                System.out.println(answer);
                System.out.flush();
            }
        });
    }

    private JsonNode perform(JsonNode request, Handle handle) throws Exception {
        String operation = request.get("op").asText();
        switch (operation) {
            case "produce": return produce(request);
            case "open": return open(request);
            case "poll": return poll(handle, request.get("timeout_ms").asLong());
            case "assignment": return assignment(handle);
            case "commit":
                handle.consumer().commitSync();
                return JSON.nullNode();
            case "seek":
                handle.consumer().seek(partition(request), request.get("offset").asLong());
                return JSON.nullNode();
            case "position": return JSON.valueToTree(handle.consumer().position(partition(request)));
            case "close":
                handle.consumer().close(Duration.ofSeconds(10));
                handles.remove(request.get("handle").asText());
                handle.thread().shutdown();
                return JSON.nullNode();
            case "offset_for_time": return offsetForTime(request);
            case "watermarks": return watermarks(request);
            default:
                return operation.startsWith("txn_")
                        ? transactions.perform(operation, request)
                        : admins.perform(operation, request);
        }
    }

    private JsonNode produce(JsonNode request) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", request.path("bootstrap").asText(bootstrap));
        settings.put("compression.type", request.get("codec").asText());
        settings.put("acks", request.get("acks").asText());
        settings.put("enable.idempotence", request.get("idempotent").asText());
        settings.put("max.request.size", "5000000");
        settings.put("linger.ms", "5");
        settings.put("retry.backoff.ms", "20");
        settings.put("reconnect.backoff.ms", "10");
        settings.put("reconnect.backoff.max.ms", "100");
        if (request.hasNonNull("batch_bytes")) {
            settings.put("batch.size", request.get("batch_bytes").asText());
        }
        List<Future<RecordMetadata>> pending = new ArrayList<>();
        ArrayNode offsets = JSON.createArrayNode();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode message : request.get("messages")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : message.get("headers")) {
                    headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
                }
                Long timestamp = message.hasNonNull("timestamp_ms") ? message.get("timestamp_ms").asLong() : null;
                pending.add(producer.send(new ProducerRecord<>(
                        request.get("topic").asText(), message.get("partition").asInt(), timestamp,
                        bytes(message.get("key")), bytes(message.get("value")), headers)));
            }
            producer.flush();
            for (Future<RecordMetadata> one : pending) {
                offsets.add(one.get().offset());
            }
        }
        return offsets;
    }

    private Properties consumerSettings(JsonNode options) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", options.path("reset").asText("earliest"));
        settings.put("metadata.max.age.ms", "1000");
        settings.put("reconnect.backoff.ms", "10");
        settings.put("retry.backoff.ms", "20");
        if (options.has("settings")) {
            options.get("settings").fields().forEachRemaining(
                    field -> settings.put(field.getKey(), field.getValue().asText()));
        }
        return settings;
    }

    private KafkaConsumer<byte[], byte[]> consumer(JsonNode options) {
        return new KafkaConsumer<>(
                consumerSettings(options), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private JsonNode open(JsonNode request) {
        KafkaConsumer<byte[], byte[]> consumer = consumer(request);
        if (request.has("topics")) {
            List<String> topics = new ArrayList<>();
            request.get("topics").forEach(topic -> topics.add(topic.asText()));
            consumer.subscribe(topics);
        } else {
            List<TopicPartition> partitions = new ArrayList<>();
            request.get("partitions").forEach(
                    one -> partitions.add(new TopicPartition(one.get(0).asText(), one.get(1).asInt())));
            consumer.assign(partitions);
        }
        String name = request.get("name").asText();
        handles.put(name, new Handle(consumer, Executors.newSingleThreadExecutor()));
        return JSON.nullNode();
    }

    private JsonNode poll(Handle handle, long timeoutMs) {
        ArrayNode records = JSON.createArrayNode();
        for (ConsumerRecord<byte[], byte[]> record : handle.consumer().poll(Duration.ofMillis(timeoutMs))) {
            ObjectNode one = records.addObject();
            one.put("partition", record.partition()).put("offset", record.offset());
            one.put("key", text(record.key())).put("value", text(record.value()));
            one.put("timestamp_ms", record.timestamp()).put("timestamp_type", record.timestampType().id);
            ArrayNode headers = one.putArray("headers");
            record.headers().forEach(
                    header -> headers.addArray().add(header.key()).add(text(header.value())));
        }
        return records;
    }

    private JsonNode assignment(Handle handle) {
        ArrayNode partitions = JSON.createArrayNode();
        handle.consumer().assignment().forEach(
                one -> partitions.addArray().add(one.topic()).add(one.partition()));
        return partitions;
    }

    private JsonNode offsetForTime(JsonNode request) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
            OffsetAndTimestamp found = consumer
                    .offsetsForTimes(Map.of(partition(request), request.get("timestamp_ms").asLong()))
                    .get(partition(request));
            return found == null ? JSON.nullNode() : JSON.valueToTree(found.offset());
        }
    }

    private JsonNode watermarks(JsonNode request) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
            List<TopicPartition> one = List.of(partition(request));
            return JSON.createArrayNode()
                    .add(consumer.beginningOffsets(one).get(one.get(0)))
                    .add(consumer.endOffsets(one).get(one.get(0)));
        }
    }

    static TopicPartition partition(JsonNode request) {
        return new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
    }

    private static byte[] bytes(JsonNode value) {
        return value == null || value.isNull() ? null : DECODE.decode(value.asText());
    }

    private static String text(byte[] value) {
        return value == null ? null : ENCODE.encodeToString(value);
    }
}
