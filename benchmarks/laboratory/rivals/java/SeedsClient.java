import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.MessageProperties;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;

/** RabbitMQ's client in the benchmark of what the founding documents say. */
final class SeedsClient {
    /** The arguments: port, seconds to wait at most. */
    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        int waitSeconds = Integer.parseInt(arguments[1]);
        Requests.serve(() -> new SeedsWorkloads(port, waitSeconds));
    }
}

/** A request is a text, a workload's name and name=value pairs; the answer is such pairs. */
final class SeedsWorkloads implements Requests.Answering {
    private static final String QUEUE = "seeds";
    private static final String EXCHANGE = "seeds.all";
    private static final int RETRY_MS = 100;
    private static final int FILL_OUTSTANDING = 2000;

    private final int port;
    private final long waitNs;
    private final Connection direct;
    private final Map<Integer, Connection> delayed = new HashMap<>();

    SeedsWorkloads(int port, int waitSeconds) throws Exception {
        this.port = port;
        this.waitNs = waitSeconds * 1_000_000_000L;
        direct = connect(port);
    }

    @Override
    public String server() {
        Map<String, Object> server = direct.getServerProperties();
        String told = "RabbitMQ %s on %s, amqp-client %s on Java %s";
        Object library = direct.getClientProperties().get("version");
        String java = System.getProperty("java.version");
        return String.format(told, server.get("version"), server.get("platform"), library, java);
    }

    @Override
    public void answer(int request, DataInputStream in, DataOutputStream out) throws Exception {
        if (request != 's') {
            throw new IOException("no request begins with the byte " + request);
        }
        var given = new Given(Requests.readText(in));
        Requests.answerText(out, run(given).text());
    }

    private Told run(Given given) throws Exception {
        switch (given.workload) {
            case "publish":
                return publish(given);
            case "consume":
                return consume(given);
            case "requeue":
                return requeue(given);
            case "window":
                return window(given);
            case "fair":
                return fair(given);
            case "latency":
                return latency(given);
            case "abandon":
                return abandon(given);
            case "hold":
                return hold(given);
            case "forget":
                return forget();
            default:
                throw new IOException("no workload is named " + given.workload);
        }
    }

    // Publishing.

    private Told publish(Given given) throws Exception {
        try (Channel channel = direct.createChannel()) {
            int queues = given.number("queues");
            for (int i = 0; i < queues; i++) {
                declare(channel, QUEUE + i, given);
            }
            channel.exchangeDeclare(EXCHANGE, "fanout", true);
            for (int i = 0; i < queues; i++) {
                channel.queueBind(QUEUE + i, EXCHANGE, "");
            }
            var publishing = new Publishing(channel, queues > 1 ? EXCHANGE : "", QUEUE + 0, given);
            Told told = publishing.run(waitNs);
            for (int i = 0; i < queues; i++) {
                channel.queueDelete(QUEUE + i);
            }
            channel.exchangeDelete(EXCHANGE);
            return told;
        }
    }

    private void fill(Given given) throws Exception {
        fill(given, given.number("count"));
    }

    private void fill(Given given, int count) throws Exception {
        try (Channel channel = direct.createChannel()) {
            channel.queueDelete(QUEUE);
            declare(channel, QUEUE, given);
        }
        publishTo(QUEUE, given.with("count", count));
    }

    private void publishTo(String queue, Given given) throws Exception {
        try (Channel channel = direct.createChannel()) {
            var fill = given.with("way", "confirms").with("rate", 0);
            fill = fill.with("group", FILL_OUTSTANDING);
            new Publishing(channel, "", queue, fill).run(waitNs);
        }
    }

    private static void declare(Channel channel, String name, Given given) throws IOException {
        Map<String, Object> arguments = new HashMap<>();
        arguments.put("x-queue-version", given.number("version"));
        if (given.number("lazy") == 1) {
            arguments.put("x-queue-mode", "lazy");
        }
        channel.queueDeclare(name, true, false, false, arguments);
    }

    // Receiving.

    private Told consume(Given given) throws Exception {
        fill(given);
        try (Channel channel = direct.createChannel()) {
            channel.basicQos(given.number("prefetch"));
            var taking = new Taking(channel, given);
            long begin = System.nanoTime();
            boolean auto = given.number("auto") == 1;
            String tag = channel.basicConsume(QUEUE, auto, taking);
            taking.await(waitNs);
            channel.queueDeclarePassive(QUEUE); // is answered after the acknowledgements
            var told = new Told(begin);
            channel.basicCancel(tag);
            channel.queueDelete(QUEUE);
            return told;
        }
    }

    /** A message comes back to its place, many times, at the head or the tail of a backlog. */
    private Told requeue(Given given) throws Exception {
        int count = given.number("count");
        boolean tail = given.text("where").equals("tail");
        fill(given);
        try (Channel channel = direct.createChannel()) {
            if (tail) { // all before it are held
                var holding = new Taking(channel, given.with("ack_every", 0));
                String tag = channel.basicConsume(QUEUE, false, holding);
                holding.await(waitNs);
                channel.basicCancel(tag);
                channel.basicReject(holding.lastTag(), true);
            }
            boolean again = given.text("where").equals("again");
            var body = new byte[given.number("body")];
            long begin = System.nanoTime();
            for (int i = 0; i < given.number("times"); i++) {
                GetResponse got = get(channel);
                long deliveryTag = got.getEnvelope().getDeliveryTag();
                if (again) {
                    channel.basicAck(deliveryTag, false);
                    channel.basicPublish(
                            "", QUEUE, MessageProperties.MINIMAL_PERSISTENT_BASIC, body);
                } else {
                    channel.basicReject(deliveryTag, true);
                }
            }
            channel.queueDeclarePassive(QUEUE);
            var told = new Told(begin);
            channel.queueDelete(QUEUE);
            told.put("backlog", count);
            return told;
        }
    }

    private GetResponse get(Channel channel) throws Exception {
        long deadline = System.nanoTime() + waitNs;
        GetResponse got = channel.basicGet(QUEUE, false);
        while (got == null) {
            if (System.nanoTime() > deadline) {
                throw new TimeoutException("no message came");
            }
            got = channel.basicGet(QUEUE, false);
        }
        return got;
    }

    // Over a network that takes its time.

    /** A slow consumer with a window of so many messages, for so many milliseconds. */
    private Told window(Given given) throws Exception {
        fill(given);
        Told told;
        try (Channel channel = far(given).createChannel()) {
            channel.basicQos(given.number("prefetch"));
            var buffer = new Buffer(channel);
            String tag = channel.basicConsume(QUEUE, false, buffer);
            told = buffer.work(given, waitNs);
            channel.basicCancel(tag);
        }
        try (Channel other = direct.createChannel()) {
            other.queueDelete(QUEUE);
        }
        return told;
    }

    /** From the call that publishes a message until it is here, pushed or pulled. */
    private Told latency(Given given) throws Exception {
        fill(given, 0);
        boolean push = given.text("how").equals("push");
        int times = given.number("times");
        var body = new byte[given.number("body")];
        try (Channel near = direct.createChannel();
                Channel channel = far(given).createChannel()) {
            var taking = new Taking(channel, given.with("count", times).with("ack_every", 1));
            String tag = push ? channel.basicConsume(QUEUE, false, taking) : null;
            long begin = System.nanoTime();
            var latencies = new double[times];
            for (int i = 0; i < times; i++) {
                long start = System.nanoTime();
                near.basicPublish("", QUEUE, MessageProperties.MINIMAL_PERSISTENT_BASIC, body);
                if (push) {
                    taking.awaitNext(waitNs);
                } else {
                    channel.basicAck(get(channel).getEnvelope().getDeliveryTag(), false);
                }
                latencies[i] = (System.nanoTime() - start) / 1e3;
            }
            var told = new Told(begin);
            told.latencies(latencies);
            if (push) {
                channel.basicCancel(tag);
            }
            near.queueDelete(QUEUE);
            return told;
        }
    }

    private Connection far(Given given) throws Exception {
        int delayUs = given.number("delay_us");
        Connection found = delayed.get(delayUs);
        if (found == null) {
            found = connect(delayUs == 0 ? port : new Delay(port, delayUs * 1000L).port());
            delayed.put(delayUs, found);
        }
        return found;
    }

    // Several consumers, and their end.

    /** Two consumers wait, one of them slower: until all that is published is acknowledged. */
    private Told fair(Given given) throws Exception {
        fill(given, 0);
        int count = given.number("count");
        int[] workUs = {given.number("slow_us"), given.number("fast_us")};
        List<Channel> channels = new ArrayList<>();
        var left = new java.util.concurrent.Semaphore(1 - count);
        List<Taking> all = new ArrayList<>();
        for (int us : workUs) {
            Channel channel = direct.createChannel();
            channels.add(channel);
            channel.basicQos(given.number("prefetch"));
            var taking = new Taking(channel, given.with("work_us", us).with("ack_every", 1));
            taking.countDown(left);
            all.add(taking);
            channel.basicConsume(QUEUE, false, taking);
        }
        long begin = System.nanoTime();
        publishTo(QUEUE, given);
        if (!left.tryAcquire(waitNs, java.util.concurrent.TimeUnit.NANOSECONDS)) {
            throw new TimeoutException("not all messages were acknowledged");
        }
        var told = new Told(begin);
        told.put("slow_share", (double) all.get(0).received() / count);
        for (Channel channel : channels) {
            channel.close();
        }
        try (Channel other = direct.createChannel()) {
            other.queueDelete(QUEUE);
        }
        return told;
    }

    /** The connection of a consumer ends with so many unacknowledged: until all are ready. */
    private Told abandon(Given given) throws Exception {
        fill(given);
        int count = given.number("count");
        Connection connection = connect(port);
        Channel channel = connection.createChannel();
        var holding = new Taking(channel, given.with("ack_every", 0));
        channel.basicConsume(QUEUE, false, holding);
        holding.await(waitNs);
        long begin = System.nanoTime();
        connection.abort();
        try (Channel other = direct.createChannel()) {
            while (other.messageCount(QUEUE) < count) {
                if (System.nanoTime() - begin > waitNs) {
                    throw new TimeoutException("not all messages came back");
                }
            }
            var told = new Told(begin);
            var again = new Taking(other, given.with("ack_every", count));
            String tag = other.basicConsume(QUEUE, false, again);
            again.await(waitNs);
            told.put("redelivered", again.redelivered());
            other.basicCancel(tag);
            other.queueDelete(QUEUE);
            return told;
        }
    }

    // A backlog that stays until it is to be forgotten.

    private Told hold(Given given) throws Exception {
        long begin = System.nanoTime();
        fill(given);
        return new Told(begin);
    }

    private Told forget() throws Exception {
        long begin = System.nanoTime();
        try (Channel channel = direct.createChannel()) {
            channel.queueDelete(QUEUE);
        }
        return new Told(begin);
    }

    private Connection connect(int at) throws Exception {
        var factory = new ConnectionFactory();
        factory.setHost("127.0.0.1");
        factory.setPort(at);
        factory.setAutomaticRecoveryEnabled(false); // a server that ends is a failure
        long deadline = System.nanoTime() + waitNs;
        while (true) {
            try {
                return factory.newConnection();
            } catch (IOException error) { // it listens a moment before it lets anybody in
                if (System.nanoTime() > deadline) {
                    throw error;
                }
                Thread.sleep(RETRY_MS);
            }
        }
    }
}

/** A workload and its parameters. */
final class Given {
    final String workload;
    private final Map<String, String> values;

    Given(String request) {
        String[] words = request.split(" ");
        workload = words[0];
        values = new HashMap<>();
        for (int i = 1; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            values.put(pair[0], pair[1]);
        }
    }

    private Given(String workload, Map<String, String> values) {
        this.workload = workload;
        this.values = values;
    }

    Given with(String name, Object value) {
        var changed = new HashMap<>(values);
        changed.put(name, String.valueOf(value));
        return new Given(workload, changed);
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException(workload + " needs " + name);
        }
        return value;
    }

    int number(String name) {
        return Integer.parseInt(text(name));
    }

    BasicProperties properties() {
        return number("persistent") == 1
                ? MessageProperties.MINIMAL_PERSISTENT_BASIC
                : MessageProperties.MINIMAL_BASIC;
    }
}

/** What a workload found; its seconds end when it is made. */
final class Told {
    private final StringBuilder text = new StringBuilder();

    Told(long beginNs) {
        put("seconds", (System.nanoTime() - beginNs) / 1e9);
    }

    void put(String name, double value) {
        text.append(name).append('=').append(value).append(' ');
    }

    void latencies(double[] us) {
        String joined = java.util.Arrays.stream(us)
                .mapToObj(each -> String.format(java.util.Locale.ROOT, "%.1f", each))
                .collect(Collectors.joining(","));
        text.append("latencies_us=").append(joined).append(' ');
    }

    String text() {
        return text.toString();
    }
}
