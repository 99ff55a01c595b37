import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** Kafka's client in the benchmark of rivals: a topic of one partition. */
final class KafkaClient implements Requests.Client {
    private static final String TOPIC = "stream";
    private static final TopicPartition PARTITION = new TopicPartition(TOPIC, 0);
    private static final Duration POLL = Duration.ofMillis(100);
    private static final int BATCH_BYTES = 1 << 20;
    private static final int FETCH_BYTES = 8 << 20;
    private static final int POLL_RECORDS = 1 << 16;

    private final int waitSeconds;
    private final KafkaProducer<byte[], byte[]> producer;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private volatile Exception failure;

    /**
     * The arguments: port, seconds to wait at most, messages between two syncs of the topic (0: as
     * the server likes).
     */
    public static void main(String[] arguments) throws Exception {
        Requests.serve(() -> new KafkaClient(
                "127.0.0.1:" + Integer.parseInt(arguments[0]),
                Integer.parseInt(arguments[1]),
                Integer.parseInt(arguments[2])));
    }

    private KafkaClient(String server, int waitSeconds, int flushMessages) throws Exception {
        this.waitSeconds = waitSeconds;
        try (var admin = Admin.create(Map.<String, Object>of("bootstrap.servers", server))) {
            var topic = new NewTopic(TOPIC, 1, (short) 1);
            if (flushMessages > 0) {
                topic.configs(Map.of("flush.messages", Integer.toString(flushMessages)));
            }
            admin.createTopics(List.of(topic)).all().get(waitSeconds, TimeUnit.SECONDS);
        }
        producer = new KafkaProducer<>(
                Map.of(
                        ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, server,
                        ProducerConfig.ACKS_CONFIG, "all",
                        ProducerConfig.LINGER_MS_CONFIG, 0,
                        ProducerConfig.BATCH_SIZE_CONFIG, BATCH_BYTES),
                new ByteArraySerializer(),
                new ByteArraySerializer());
        consumer = new KafkaConsumer<>(
                Map.of(
                        ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, server,
                        ConsumerConfig.MAX_POLL_RECORDS_CONFIG, POLL_RECORDS,
                        ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, FETCH_BYTES),
                new ByteArrayDeserializer(),
                new ByteArrayDeserializer());
        consumer.assign(List.of(PARTITION));
        consumer.seekToBeginning(List.of(PARTITION));
    }

    @Override
    public String server() {
        String java = System.getProperty("java.version");
        return String.format("Kafka %s on Java %s", AppInfoParser.getVersion(), java);
    }

    @Override
    public double publish(byte[][] bodies, int outstanding) throws Exception {
        var room = new Semaphore(outstanding);
        long begin = System.nanoTime();
        for (byte[] body : bodies) {
            acquire(room, 1);
            producer.send(new ProducerRecord<>(TOPIC, 0, null, body), (sent, error) -> {
                if (error != null) {
                    failure = error;
                }
                room.release();
            });
        }
        acquire(room, outstanding);
        double seconds = (System.nanoTime() - begin) / 1e9;
        if (failure != null) {
            throw failure;
        }
        return seconds;
    }

    /** Reads on from where it stands; the reader's place is its own, so nothing is acknowledged. */
    @Override
    public double consume(byte[][] bodies, int ackEvery) throws Exception {
        long begin = System.nanoTime();
        long deadline = begin + TimeUnit.SECONDS.toNanos(waitSeconds);
        int received = 0;
        while (received < bodies.length) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                if (received == bodies.length) {
                    throw new IOException("more came than the " + received + " asked for");
                }
                bodies[received++] = record.value();
            }
            if (System.nanoTime() > deadline) {
                throw new TimeoutException(received + " messages in " + waitSeconds + " s");
            }
        }
        return (System.nanoTime() - begin) / 1e9;
    }

    private void acquire(Semaphore permits, int count) throws Exception {
        if (!permits.tryAcquire(count, waitSeconds, TimeUnit.SECONDS)) {
            throw new TimeoutException("no answer in " + waitSeconds + " s");
        }
    }
}
