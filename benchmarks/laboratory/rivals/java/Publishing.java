import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.ConfirmListener;
import java.io.IOException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.locks.LockSupport;

/** Publishes so many messages: in transactions, or with confirms, so many outstanding. */
final class Publishing implements ConfirmListener {
    private final Channel channel;
    private final String exchange;
    private final String key;
    private final int count;
    private final int group;
    private final int rate;
    private final boolean transactions;
    private final byte[] body;
    private final BasicProperties properties;
    private final Semaphore room;
    private final AtomicLongArray sentNs;
    private final double[] latencies;
    private volatile boolean refused;

    Publishing(Channel channel, String exchange, String key, Given given) {
        this.channel = channel;
        this.exchange = exchange;
        this.key = key;
        count = given.number("count");
        group = given.number("group");
        rate = given.number("rate");
        transactions = given.text("way").equals("transactions");
        body = new byte[given.number("body")];
        properties = given.properties();
        room = new Semaphore(group);
        sentNs = new AtomicLongArray(count + 1);
        latencies = new double[transactions ? count / group : count];
    }

    Told run(long waitNs) throws Exception {
        return transactions ? commit() : confirm(waitNs);
    }

    private Told commit() throws Exception {
        channel.txSelect();
        long begin = System.nanoTime();
        for (int i = 0; i < latencies.length; i++) {
            long start = System.nanoTime();
            for (int j = 0; j < group; j++) {
                channel.basicPublish(exchange, key, properties, body);
            }
            channel.txCommit();
            latencies[i] = (System.nanoTime() - start) / 1e3;
        }
        return told(begin);
    }

    private Told confirm(long waitNs) throws Exception {
        channel.confirmSelect();
        channel.addConfirmListener(this);
        long begin = System.nanoTime();
        for (int i = 1; i <= count; i++) {
            if (rate > 0) { // a constant load
                waitUntil(begin + i * 1_000_000_000L / rate);
            }
            acquire(1, waitNs);
            sentNs.set(i, System.nanoTime());
            channel.basicPublish(exchange, key, properties, body);
        }
        acquire(group, waitNs);
        if (refused) {
            throw new IOException("the broker refused messages");
        }
        return told(begin);
    }

    private Told told(long begin) {
        var told = new Told(begin);
        told.latencies(latencies);
        return told;
    }

    private void acquire(int permits, long waitNs) throws Exception {
        if (!room.tryAcquire(permits, waitNs, TimeUnit.NANOSECONDS)) {
            throw new TimeoutException("confirms did not come");
        }
    }

    @Override
    public void handleAck(long tag, boolean multiple) {
        long now = System.nanoTime();
        int settled = 0;
        // Downwards, to the first that was settled by a multiple one before.
        for (int i = (int) tag; i > 0; i--) {
            long sent = sentNs.getAndSet(i, 0);
            if (sent != 0) {
                latencies[i - 1] = (now - sent) / 1e3;
                settled++;
            }
            if (!multiple || settledUpTo(i)) {
                break;
            }
        }
        if (multiple) {
            upTo = Math.max(upTo, tag);
        }
        room.release(settled);
    }

    private long upTo; // every tag up to here is settled; the connection's thread alone asks

    private boolean settledUpTo(int tag) {
        return tag <= upTo;
    }

    @Override
    public void handleNack(long tag, boolean multiple) {
        refused = true;
        handleAck(tag, multiple);
    }

    private static void waitUntil(long dueNs) {
        for (long left = dueNs - System.nanoTime(); left > 0; left = dueNs - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }
}
