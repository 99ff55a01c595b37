import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import java.io.IOException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;

/** Takes so many messages, and acknowledges so many at once; 0: none. */
final class Taking extends DefaultConsumer {
    private final Semaphore each = new Semaphore(0);
    private final int count;
    private final int ackEvery;
    private final boolean multiple;
    private final long workNs;
    private Semaphore counted;
    private volatile int received;
    private volatile int redelivered;
    private volatile long lastTag;

    Taking(Channel channel, Given given) {
        super(channel);
        count = given.number("count");
        ackEvery = given.number("ack_every");
        multiple = given.number("multiple") == 1;
        workNs = given.number("work_us") * 1000L;
    }

    /** Each acknowledgement gives a permit to this. */
    void countDown(Semaphore left) {
        counted = left;
    }

    int received() {
        return received;
    }

    int redelivered() {
        return redelivered;
    }

    long lastTag() {
        return lastTag;
    }

    void await(long waitNs) throws Exception {
        acquire(count, waitNs);
    }

    void awaitNext(long waitNs) throws Exception {
        acquire(1, waitNs);
    }

    private void acquire(int permits, long waitNs) throws Exception {
        if (!each.tryAcquire(permits, waitNs, TimeUnit.NANOSECONDS)) {
            throw new TimeoutException("messages did not come");
        }
    }

    @Override
    public void handleDelivery(
            String tag, Envelope envelope, BasicProperties properties, byte[] body)
            throws IOException {
        if (workNs > 0) {
            LockSupport.parkNanos(workNs);
        }
        lastTag = envelope.getDeliveryTag();
        received++;
        redelivered += envelope.isRedeliver() ? 1 : 0;
        if (ackEvery > 0 && (received % ackEvery == 0 || received == count)) {
            getChannel().basicAck(lastTag, multiple);
        }
        if (counted != null) {
            counted.release();
        }
        each.release();
    }
}
