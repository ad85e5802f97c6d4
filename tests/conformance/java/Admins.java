import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Admin calls by name; each answers what the test looks at. */
final class Admins {
    private static final ObjectMapper JSON = Conformance.JSON;

    private final Properties settings = new Properties();
    private Admin admin;

    Admins(String bootstrap) {
        settings.put("bootstrap.servers", bootstrap);
        settings.put("retry.backoff.ms", "20");
        settings.put("reconnect.backoff.ms", "10");
    }

    private synchronized Admin admin() {
        if (admin == null) {
            admin = Admin.create(settings);
        }
        return admin;
    }

    JsonNode perform(String operation, JsonNode request) throws Exception {
        switch (operation) {
            case "create_topic": return createTopic(request);
            case "delete_topic":
                admin().deleteTopics(List.of(request.get("topic").asText())).all().get();
                return JSON.nullNode();
            case "list_topics": return JSON.valueToTree(admin().listTopics().names().get());
            case "describe_topic": return describeTopic(request);
            case "create_partitions":
                admin().createPartitions(Map.of(
                        request.get("topic").asText(),
                        NewPartitions.increaseTo(request.get("count").asInt()))).all().get();
                return JSON.nullNode();
            case "delete_records": return JSON.valueToTree(admin()
                    .deleteRecords(Map.of(
                            Conformance.partition(request),
                            RecordsToDelete.beforeOffset(request.get("offset").asLong())))
                    .lowWatermarks().get(Conformance.partition(request)).get().lowWatermark());
            case "describe_configs": return describeConfigs(request);
            case "alter_config": return alterConfig(request);
            case "describe_cluster": return describeCluster();
            case "list_offsets": return listOffsets(request);
            case "describe_log_dirs": return describeLogDirs(request);
            default: return groups(operation, request);
        }
    }

    private JsonNode groups(String operation, JsonNode request) throws Exception {
        String group = request.path("group").asText();
        switch (operation) {
            case "list_groups": return listGroups();
            case "describe_group": return describeGroup(group);
            case "delete_group":
                admin().deleteConsumerGroups(List.of(group)).all().get();
                return JSON.nullNode();
            case "group_offsets": return groupOffsets(group);
            case "alter_group_offset":
                admin().alterConsumerGroupOffsets(group, Map.of(
                        Conformance.partition(request),
                        new OffsetAndMetadata(request.get("offset").asLong()))).all().get();
                return JSON.nullNode();
            case "delete_group_offset":
                admin().deleteConsumerGroupOffsets(group, Set.of(Conformance.partition(request)))
                        .partitionResult(Conformance.partition(request)).get();
                return JSON.nullNode();
            default: throw new IllegalArgumentException(operation);
        }
    }

    private JsonNode createTopic(JsonNode request) throws Exception {
        String name = request.get("topic").asText();
        NewTopic topic = new NewTopic(name, request.path("partitions").asInt(1), (short) 1);
        if (request.has("assignments")) {
            Map<Integer, List<Integer>> assignments = new HashMap<>();
            request.get("assignments").fields().forEachRemaining(field -> {
                List<Integer> replicas = new ArrayList<>();
                field.getValue().forEach(replica -> replicas.add(replica.asInt()));
                assignments.put(Integer.valueOf(field.getKey()), replicas);
            });
            topic = new NewTopic(name, assignments);
        }
        Map<String, String> configs = new HashMap<>();
        request.path("configs").fields().forEachRemaining(
                field -> configs.put(field.getKey(), field.getValue().asText()));
        topic.configs(configs);
        CreateTopicsOptions options =
                new CreateTopicsOptions().validateOnly(request.path("validate_only").asBoolean());
        CreateTopicsResult result = admin().createTopics(List.of(topic), options);
        result.all().get();
        ObjectNode answer = JSON.createObjectNode();
        answer.put("partitions", result.numPartitions(name).get());
        answer.put("replication_factor", result.replicationFactor(name).get());
        result.config(name).get().entries().forEach(entry -> {
            if (configs.containsKey(entry.name())) {
                answer.put(entry.name(), entry.value());
            }
        });
        return answer;
    }

    private JsonNode describeTopic(JsonNode request) throws Exception {
        DescribeTopicsOptions options = new DescribeTopicsOptions();
        if (request.has("page")) {
            options.partitionSizeLimitPerResponse(request.get("page").asInt());
        }
        String name = request.get("topic").asText();
        TopicDescription topic = admin().describeTopics(List.of(name), options).allTopicNames().get().get(name);
        ObjectNode answer = JSON.createObjectNode();
        answer.put("id", topic.topicId().toString()).put("internal", topic.isInternal());
        ArrayNode partitions = answer.putArray("partitions");
        topic.partitions().forEach(one -> {
            ObjectNode row = partitions.addObject();
            row.put("index", one.partition()).put("leader", one.leader().id());
            one.replicas().stream().map(Node::id).forEach(row.putArray("replicas")::add);
            one.isr().stream().map(Node::id).forEach(row.putArray("isr")::add);
        });
        return answer;
    }

    private static ConfigResource resource(JsonNode request) {
        return new ConfigResource(
                ConfigResource.Type.valueOf(request.get("type").asText()), request.get("name").asText());
    }

    private JsonNode describeConfigs(JsonNode request) throws Exception {
        ConfigResource resource = resource(request);
        DescribeConfigsOptions options =
                new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        ObjectNode answer = JSON.createObjectNode();
        for (ConfigEntry entry : admin().describeConfigs(List.of(resource), options).all().get().get(resource).entries()) {
            answer.putObject(entry.name())
                    .put("value", entry.value())
                    .put("source", entry.source().name())
                    .put("type", entry.type().name())
                    .put("read_only", entry.isReadOnly())
                    .put("sensitive", entry.isSensitive())
                    .put("documented", entry.documentation() != null && !entry.documentation().isEmpty());
        }
        return answer;
    }

    private JsonNode alterConfig(JsonNode request) throws Exception {
        AlterConfigOp change = new AlterConfigOp(
                new ConfigEntry(request.get("key").asText(), request.path("value").asText(null)),
                AlterConfigOp.OpType.valueOf(request.get("change").asText()));
        Map<ConfigResource, Collection<AlterConfigOp>> changes = Map.of(resource(request), List.of(change));
        admin().incrementalAlterConfigs(changes).all().get();
        return JSON.nullNode();
    }

    private JsonNode describeCluster() throws Exception {
        DescribeClusterResult cluster = admin().describeCluster();
        ObjectNode answer = JSON.createObjectNode();
        answer.put("cluster_id", cluster.clusterId().get());
        answer.put("controller", cluster.controller().get().id());
        ArrayNode nodes = answer.putArray("nodes");
        for (Node node : cluster.nodes().get()) {
            nodes.addObject().put("id", node.id()).put("host", node.host()).put("port", node.port());
        }
        return answer;
    }

    private JsonNode listOffsets(JsonNode request) throws Exception {
        JsonNode spec = request.get("spec");
        OffsetSpec wanted = spec.isNumber()
                ? OffsetSpec.forTimestamp(spec.asLong())
                : Map.of("earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(),
                        "max_timestamp", OffsetSpec.maxTimestamp()).get(spec.asText());
        ListOffsetsResult.ListOffsetsResultInfo found = admin()
                .listOffsets(Map.of(Conformance.partition(request), wanted))
                .partitionResult(Conformance.partition(request)).get();
        return JSON.createObjectNode().put("offset", found.offset()).put("timestamp", found.timestamp());
    }

    private JsonNode describeLogDirs(JsonNode request) throws Exception {
        String topic = request.get("topic").asText();
        int broker = admin().describeCluster().nodes().get().iterator().next().id();
        ArrayNode answer = JSON.createArrayNode();
        Map<String, LogDirDescription> directories =
                admin().describeLogDirs(List.of(broker)).allDescriptions().get().get(broker);
        directories.forEach((path, directory) -> {
            ObjectNode row = answer.addObject();
            row.put("path", path).put("failed", directory.error() != null);
            row.put("total_bytes", directory.totalBytes().orElse(-1));
            row.put("usable_bytes", directory.usableBytes().orElse(-1));
            ObjectNode sizes = row.putObject("sizes");
            directory.replicaInfos().forEach((partition, replica) -> {
                if (partition.topic().equals(topic)) {
                    sizes.put(String.valueOf(partition.partition()), replica.size());
                }
            });
        });
        return answer;
    }

    private JsonNode listGroups() throws Exception {
        ObjectNode answer = JSON.createObjectNode();
        admin().listConsumerGroups().all().get().forEach(group ->
                answer.put(group.groupId(), group.state().map(Object::toString).orElse("")));
        return answer;
    }

    private JsonNode describeGroup(String group) throws Exception {
        var description = admin().describeConsumerGroups(List.of(group)).all().get().get(group);
        ObjectNode answer = JSON.createObjectNode();
        answer.put("state", description.state().toString());
        answer.put("assignor", description.partitionAssignor());
        answer.put("coordinator", description.coordinator().id());
        ArrayNode members = answer.putArray("members");
        description.members().forEach(member -> {
            ObjectNode row = members.addObject();
            row.put("member_id", member.consumerId()).put("client_id", member.clientId());
            row.put("host", member.host()).put("instance_id", member.groupInstanceId().orElse(null));
            ArrayNode partitions = row.putArray("partitions");
            member.assignment().topicPartitions().forEach(
                    one -> partitions.addArray().add(one.topic()).add(one.partition()));
        });
        return answer;
    }

    private JsonNode groupOffsets(String group) throws Exception {
        ArrayNode answer = JSON.createArrayNode();
        Map<TopicPartition, OffsetAndMetadata> offsets =
                admin().listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        new HashSet<>(offsets.entrySet()).forEach(entry -> {
            if (entry.getValue() != null) {
                answer.addArray().add(entry.getKey().topic()).add(entry.getKey().partition())
                        .add(entry.getValue().offset()).add(entry.getValue().metadata());
            }
        });
        return answer;
    }
}
