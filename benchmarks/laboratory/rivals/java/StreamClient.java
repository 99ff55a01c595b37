import com.rabbitmq.stream.Address;
import com.rabbitmq.stream.Consumer;
import com.rabbitmq.stream.Environment;
import com.rabbitmq.stream.OffsetSpecification;
import com.rabbitmq.stream.Producer;
import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** RabbitMQ's client for streams in the benchmark of rivals: one stream. */
final class StreamClient implements Requests.Client {
    private static final String STREAM = "stream";
    private static final int CREDITS = 10; // chunks that are on their way at once

    private final int waitSeconds;
    private final Environment environment;
    private final Producer producer;
    private long read; // the offset of the next message
    private volatile int refused;

    /** The arguments: port, seconds to wait at most. */
    public static void main(String[] arguments) throws Exception {
        Requests.serve(() -> new StreamClient(
                Integer.parseInt(arguments[0]), Integer.parseInt(arguments[1])));
    }

    private StreamClient(int port, int waitSeconds) {
        this.waitSeconds = waitSeconds;
        environment = Environment.builder()
                .host("127.0.0.1")
                .port(port)
                .addressResolver(address -> new Address("127.0.0.1", port))
                .rpcTimeout(Duration.ofSeconds(waitSeconds))
                .build();
        environment.streamCreator().stream(STREAM).create();
        producer = environment.producerBuilder().stream(STREAM).build();
    }

    @Override
    public String server() {
        String java = System.getProperty("java.version");
        String library = Environment.class.getPackage().getImplementationVersion();
        return String.format("stream-client %s on Java %s", library, java);
    }

    @Override
    public double publish(byte[][] bodies, int outstanding) throws Exception {
        var room = new Semaphore(outstanding);
        long begin = System.nanoTime();
        for (byte[] body : bodies) {
            acquire(room, 1);
            producer.send(producer.messageBuilder().addData(body).build(), status -> {
                refused += status.isConfirmed() ? 0 : 1;
                room.release();
            });
        }
        acquire(room, outstanding);
        double seconds = (System.nanoTime() - begin) / 1e9;
        if (refused != 0) {
            throw new IOException("the broker refused " + refused + " messages");
        }
        return seconds;
    }

    /**
     * Reads on from where the last reader stood; the reader's place is its own, so nothing is
     * acknowledged.
     */
    @Override
    public double consume(byte[][] bodies, int ackEvery) throws Exception {
        var reading = new Reading(bodies, read);
        long begin = System.nanoTime();
        Consumer consumer = environment.consumerBuilder().stream(STREAM)
                .offset(OffsetSpecification.offset(read))
                .flow()
                .initialCredits(CREDITS)
                .builder()
                .messageHandler((context, message) ->
                        reading.take(context.offset(), message.getBodyAsBinary()))
                .build();
        acquire(reading.done, 1);
        double seconds = (System.nanoTime() - begin) / 1e9;
        consumer.close();
        read += bodies.length;
        return seconds;
    }

    private void acquire(Semaphore permits, int count) throws Exception {
        if (!permits.tryAcquire(count, waitSeconds, TimeUnit.SECONDS)) {
            throw new TimeoutException("no answer in " + waitSeconds + " s");
        }
    }

    /** Bodies on their way in; the client calls it from one thread at a time. */
    private static final class Reading {
        final Semaphore done = new Semaphore(0);

        private final byte[][] bodies;
        private final long first;
        private int received;

        Reading(byte[][] bodies, long first) {
            this.bodies = bodies;
            this.first = first;
        }

        /** The chunk that has the first one may begin before it. */
        void take(long offset, byte[] body) {
            if (offset >= first && received < bodies.length) {
                bodies[received++] = body;
                if (received == bodies.length) {
                    done.release();
                }
            }
        }
    }
}
