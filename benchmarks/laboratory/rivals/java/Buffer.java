import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/** What was pushed waits here until the consumer, which is slow, comes to it. */
final class Buffer extends DefaultConsumer {
    private static final int LOOK_MS = 20;

    private final BlockingQueue<Pushed> waiting = new LinkedBlockingQueue<>();
    private final AtomicInteger bytes = new AtomicInteger();
    private volatile int bytesMost;

    Buffer(Channel channel) {
        super(channel);
    }

    @Override
    public void handleDelivery(
            String tag, Envelope envelope, BasicProperties properties, byte[] body) {
        bytesMost = Math.max(bytesMost, bytes.addAndGet(body.length));
        waiting.add(new Pushed(envelope.getDeliveryTag(), body, System.nanoTime()));
    }

    /** From the first message on, for so long: take one, work, acknowledge it. */
    Told work(Given given, long waitNs) throws Exception {
        long workNs = given.number("work_us") * 1000L;
        Pushed next = waiting.poll(waitNs, TimeUnit.NANOSECONDS);
        long begin = System.nanoTime();
        long end = begin + given.number("run_ms") * 1_000_000L;
        List<Double> latencies = new ArrayList<>();
        while (System.nanoTime() < end) {
            if (next != null) {
                latencies.add((System.nanoTime() - next.atNs) / 1e3);
                LockSupport.parkNanos(workNs);
                getChannel().basicAck(next.tag, false);
                bytes.addAndGet(-next.body.length);
            }
            next = waiting.poll(LOOK_MS, TimeUnit.MILLISECONDS);
        }
        var told = new Told(begin);
        told.put("messages", latencies.size());
        told.put("buffered", bytesMost);
        told.latencies(latencies.stream().mapToDouble(Double::doubleValue).toArray());
        return told;
    }

    private static final class Pushed {
        final long tag;
        final byte[] body;
        final long atNs;

        Pushed(long tag, byte[] body, long atNs) {
            this.tag = tag;
            this.body = body;
            this.atNs = atNs;
        }
    }
}
