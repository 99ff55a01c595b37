/* What ActiveMQ does in each of the cases that test_sessions.py plays on a store.
 *
 * An embedded broker counts the acknowledgements that settle messages.  Its transport is
 * synchronous (async=false), so a count is up to date when the client's call returns.  One line of
 * JSON a case: its name and what was seen, the same lists that sessions.py makes.
 */
import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.ExceptionListener;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.RedeliveryPolicy;
import org.apache.activemq.broker.BrokerFilter;
import org.apache.activemq.broker.BrokerPlugin;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.ConnectionContext;
import org.apache.activemq.broker.ConsumerBrokerExchange;
import org.apache.activemq.command.MessageAck;
import org.apache.activemq.command.TransactionId;

public final class Sessions {
    private static final AtomicInteger acked = new AtomicInteger();
    private static final AtomicInteger pending = new AtomicInteger();
    private static final String[] MODES = {"transacted", "auto", "client", "dups_ok", "individual"};
    private static final long QUIET_MS = 300;
    private static final long PATIENCE_MS = 20_000;
    private static int names = 0;

    public static void main(String[] arguments) throws Exception {
        BrokerService broker = new BrokerService();
        broker.setPersistent(false);
        broker.setUseJmx(false);
        broker.setAdvisorySupport(false);
        broker.setBrokerName("t");
        broker.setPlugins(new BrokerPlugin[] {next -> new BrokerFilter(next) {
            @Override
            public void acknowledge(ConsumerBrokerExchange from, MessageAck ack) throws Exception {
                super.acknowledge(from, ack);
                if (ack.isStandardAck() || ack.isIndividualAck() || ack.isPoisonAck()) {
                    (ack.isInTransaction() ? pending : acked).addAndGet(ack.getMessageCount());
                }
            }

            @Override
            public void commitTransaction(ConnectionContext context, TransactionId id,
                                          boolean onePhase) throws Exception {
                super.commitTransaction(context, id, onePhase);
                acked.addAndGet(pending.getAndSet(0));
            }

            @Override
            public void rollbackTransaction(ConnectionContext context, TransactionId id)
                    throws Exception {
                super.rollbackTransaction(context, id);
                pending.set(0);
            }
        }});
        broker.start();
        for (boolean optimize : new boolean[] {false, true}) {
            for (int mode : new int[] {1, 3, 2, 4}) {
                for (boolean topic : new boolean[] {false, true}) {
                    for (boolean listener : new boolean[] {false, true}) {
                        moments(mode, optimize, topic, listener, 20, 100);
                    }
                }
            }
        }
        moments(1, true, false, false, 1, 6);
        moments(3, true, true, false, 1, 6);
        for (boolean topic : new boolean[] {false, true}) {
            for (boolean listener : new boolean[] {false, true}) {
                moments(0, false, topic, listener, 20, 100);
            }
        }
        for (int mode : new int[] {0, 1, 2, 3, 4}) {
            for (boolean topic : new boolean[] {false, true}) {
                raises(mode, false, topic);
            }
        }
        raises(1, true, false);
        raises(1, true, true);
        for (boolean persistent : new boolean[] {true, false}) {
            for (boolean blocking : new boolean[] {true, false}) {
                limit(persistent, blocking);
            }
        }
        delays();
        rollback();
        rollbackLimit();
        recover(2);
        recover(4);
        recover(1);
        scope();
        individual();
        for (int mode : new int[] {0, 1, 2, 3, 4}) {
            left(mode);
        }
        refusals();
        uri();
        System.out.flush();
        System.exit(0);
    }

    private static void tell(String name, List<?> seen) {
        StringBuilder line = new StringBuilder("{\"case\":\"" + name + "\",\"seen\":[");
        String comma = "";
        for (Object one : seen) {
            line.append(comma).append(one instanceof Integer ? one.toString()
                : "\"" + one.toString().replace("\\", "\\\\").replace("\"", "\\\"") + "\"");
            comma = ",";
        }
        System.out.println(line + "]}");
    }

    private static Connection connection(String options, RedeliveryPolicy policy, boolean blocking)
            throws Exception {
        ActiveMQConnectionFactory factory =
            new ActiveMQConnectionFactory("vm://t?create=false&async=false" + options);
        if (policy != null) {
            factory.setRedeliveryPolicy(policy);
        }
        factory.setNonBlockingRedelivery(!blocking);
        Connection connection = factory.createConnection();
        connection.setExceptionListener((ExceptionListener) error -> { });
        connection.start();
        return connection;
    }

    private static RedeliveryPolicy policy(int most, long initial, long next) {
        RedeliveryPolicy policy = new RedeliveryPolicy();
        policy.setMaximumRedeliveries(most);
        policy.setInitialRedeliveryDelay(initial);
        policy.setRedeliveryDelay(next);
        return policy;
    }

    private static Destination destination(Session session, boolean topic) throws Exception {
        String name = "d" + names++;
        return topic ? session.createTopic(name) : session.createQueue(name);
    }

    private static void send(Connection connection, Destination to, boolean persistent,
                             String... bodies) throws Exception {
        Session session = connection.createSession(false, 1);
        MessageProducer producer = session.createProducer(to);
        producer.setDeliveryMode(persistent ? 2 : 1);
        for (String body : bodies) {
            producer.send(session.createTextMessage(body));
        }
        session.close();
    }

    private static String[] numbers(int count) {
        String[] bodies = new String[count];
        for (int i = 0; i < count; i++) {
            bodies[i] = Integer.toString(i);
        }
        return bodies;
    }

    private static String told(Message message) throws JMSException {
        return ((TextMessage) message).getText() + (message.getJMSRedelivered() ? " again " : " ")
            + message.getIntProperty("JMSXDeliveryCount");
    }

    /* Wait for so many, and until nothing was added for a while. */
    private static void settle(List<?> seen, int least) throws Exception {
        long end = System.nanoTime() + PATIENCE_MS * 1_000_000;
        while (seen.size() < least && System.nanoTime() < end) {
            Thread.sleep(10);
        }
        int before = -1;
        while (before != seen.size()) {
            before = seen.size();
            Thread.sleep(QUIET_MS);
        }
    }

    /* How long to wait for the next one, when so many are sure to come. */
    private static long patience(int count, int least) {
        return count < least ? PATIENCE_MS : QUIET_MS;
    }

    /* How many are acknowledged when each message is handed out, then at the end, then after the
     * session was closed. */
    private static void moments(int mode, boolean optimize, boolean topic, boolean listener,
                                int prefetch, int count) throws Exception {
        String options = "&jms.prefetchPolicy.all=" + prefetch + "&jms.optimizeAcknowledge="
            + optimize + "&jms.optimizeAcknowledgeTimeOut=0";
        List<Object> seen = Collections.synchronizedList(new ArrayList<>());
        try (Connection connection = connection(options, null, true)) {
            Session session = connection.createSession(mode == 0, mode);
            Destination from = destination(session, topic);
            MessageConsumer consumer = session.createConsumer(from);
            acked.set(0);
            if (listener) {
                consumer.setMessageListener(message -> seen.add(acked.get()));
            }
            send(connection, from, false, numbers(count));
            if (listener) {
                settle(seen, count);
            } else {
                while (seen.size() < count && consumer.receive(PATIENCE_MS) != null) {
                    seen.add(acked.get());
                }
            }
            seen.add(acked.get());
            session.close();
            seen.add(acked.get());
        }
        tell("moments " + MODES[mode] + (optimize ? " optimize" : "")
            + (topic ? " topic" : " queue") + (listener ? " listener " : " receive ") + prefetch, seen);
    }

    /* The listener raises at "b", twice; then what is acknowledged, and what another session gets
     * of the queue. */
    private static void raises(int mode, boolean optimize, boolean topic) throws Exception {
        List<Object> seen = Collections.synchronizedList(new ArrayList<>());
        AtomicInteger left = new AtomicInteger(2);
        try (Connection connection = connection("&jms.optimizeAcknowledge=" + optimize
                + "&jms.optimizeAcknowledgeTimeOut=0", policy(6, 20, 20), true)) {
            Session session = connection.createSession(mode == 0, mode);
            Destination from = destination(session, topic);
            MessageConsumer consumer = session.createConsumer(from);
            acked.set(0);
            consumer.setMessageListener(message -> {
                String what;
                try {
                    what = told(message);
                } catch (JMSException error) {
                    what = error.toString();
                }
                seen.add(what);
                if (what.startsWith("b") && left.getAndDecrement() > 0) {
                    throw new RuntimeException("no");
                }
            });
            send(connection, from, true, "a", "b", "c");
            boolean again = mode == 4 || mode == 1 || (mode == 3 && !topic);
            settle(seen, mode == 4 ? 7 : !again ? 3 : optimize ? 4 : 5);
            seen.add(acked.get());
            session.close();
            if (!topic) {
                rest(connection, from, seen, optimize ? 2 : mode == 1 || mode == 3 ? 0 : 3);
            }
        }
        tell("raises " + MODES[mode] + (optimize ? " optimize" : "")
            + (topic ? " topic" : " queue"), seen);
    }

    /* What is left in the queue: at least so many. */
    private static void rest(Connection connection, Destination from, List<Object> seen, int least)
            throws Exception {
        Session session = connection.createSession(false, 1);
        MessageConsumer consumer = session.createConsumer(from);
        Message message;
        for (int i = 0; (message = consumer.receive(patience(i, least))) != null; i++) {
            seen.add("left " + told(message));
        }
        session.close();
    }

    private static void dead(Connection connection, List<Object> seen, int least)
            throws Exception {
        Session session = connection.createSession(false, 1);
        MessageConsumer consumer = session.createConsumer(session.createQueue("ActiveMQ.DLQ"));
        Message message;
        for (int i = 0; (message = consumer.receive(patience(i, least))) != null; i++) {
            boolean cause = message.getStringProperty("dlqDeliveryFailureCause") != null;
            seen.add("dead " + told(message) + (cause ? " with its cause" : ""));
        }
        session.close();
    }

    /* "x" always fails: how often it comes, whether "y" waits for it, and where it ends. */
    private static void limit(boolean persistent, boolean blocking) throws Exception {
        List<Object> seen = Collections.synchronizedList(new ArrayList<>());
        try (Connection connection = connection("", policy(2, 100, 100), blocking)) {
            Session session = connection.createSession(false, 1);
            Destination from = destination(session, false);
            send(connection, from, persistent, "x", "y");
            session.createConsumer(from).setMessageListener(message -> {
                try {
                    seen.add(told(message));
                    if (((TextMessage) message).getText().equals("x")) {
                        throw new RuntimeException("no");
                    }
                } catch (JMSException error) {
                    seen.add(error.toString());
                }
            });
            settle(seen, 4);
            dead(connection, seen, persistent ? 1 : 0);
        }
        tell("limit " + (persistent ? "persistent " : "transient ")
            + (blocking ? "blocking" : "passing"), seen);
    }

    /* The milliseconds between the deliveries of one that always fails. */
    private static void delays() throws Exception {
        List<Object> seen = Collections.synchronizedList(new ArrayList<>());
        RedeliveryPolicy policy = policy(5, 60, 60);
        policy.setUseExponentialBackOff(true);
        policy.setBackOffMultiplier(2);
        policy.setMaximumRedeliveryDelay(300);
        long[] last = {0};
        try (Connection connection = connection("", policy, true)) {
            Session session = connection.createSession(false, 1);
            Destination from = destination(session, false);
            send(connection, from, false, "x");
            session.createConsumer(from).setMessageListener(message -> {
                long now = System.nanoTime() / 1_000_000;
                if (last[0] != 0) {
                    seen.add((int) (now - last[0]));
                }
                last[0] = now;
                throw new RuntimeException("no");
            });
            settle(seen, 5);
        }
        tell("delays", seen);
    }

    private static void receive(MessageConsumer consumer, int count, List<Object> seen)
            throws Exception {
        for (int i = 0; i < count; i++) {
            Message message = consumer.receive(PATIENCE_MS);
            seen.add(message == null ? "nothing" : told(message));
        }
    }

    private static void rollback() throws Exception {
        List<Object> seen = new ArrayList<>();
        try (Connection connection = connection("", policy(6, 50, 50), true)) {
            Session session = connection.createSession(true, 0);
            Destination from = destination(session, false);
            send(connection, from, true, numbers(5));
            acked.set(0);
            MessageConsumer consumer = session.createConsumer(from);
            receive(consumer, 3, seen);
            session.rollback();
            seen.add(acked.get());
            receive(consumer, 4, seen);
            session.rollback();
            receive(consumer, 5, seen);
            session.commit();
            seen.add(acked.get());
        }
        tell("rollback", seen);
    }

    private static void rollbackLimit() throws Exception {
        List<Object> seen = new ArrayList<>();
        try (Connection connection = connection("", policy(2, 20, 20), true)) {
            Session session = connection.createSession(true, 0);
            Destination from = destination(session, false);
            send(connection, from, true, "x", "y");
            MessageConsumer consumer = session.createConsumer(from);
            for (int i = 0; i < 3; i++) {
                receive(consumer, 1, seen);
                session.rollback();
            }
            receive(consumer, 1, seen);
            session.commit();
            dead(connection, seen, 1);
        }
        tell("rollback limit", seen);
    }

    private static void recover(int mode) throws Exception {
        List<Object> seen = new ArrayList<>();
        try (Connection connection = connection("", policy(6, 20, 20), true)) {
            Session session = connection.createSession(false, mode);
            Destination from = destination(session, false);
            send(connection, from, true, numbers(4));
            acked.set(0);
            MessageConsumer consumer = session.createConsumer(from);
            receive(consumer, 2, seen);
            session.recover();
            receive(consumer, mode == 1 ? 2 : 3, seen);
            session.recover();
            if (mode == 1) {
                seen.add(consumer.receive(QUIET_MS) == null ? "nothing" : "something");
            } else {
                receive(consumer, 1, seen);
            }
            seen.add(acked.get());
        }
        tell("recover " + MODES[mode], seen);
    }

    /* acknowledge() in CLIENT: of the session, all its consumers; not what comes later. */
    private static void scope() throws Exception {
        List<Object> seen = new ArrayList<>();
        try (Connection connection = connection("", null, true)) {
            Session session = connection.createSession(false, 2);
            Destination one = destination(session, false);
            Destination two = destination(session, false);
            send(connection, one, true, "a", "b", "c");
            send(connection, two, true, "d", "e");
            acked.set(0);
            MessageConsumer first = session.createConsumer(one);
            MessageConsumer second = session.createConsumer(two);
            Message a = first.receive(PATIENCE_MS);
            first.receive(PATIENCE_MS);
            second.receive(PATIENCE_MS);
            a.acknowledge();
            seen.add(acked.get());
            first.receive(PATIENCE_MS);
            a.acknowledge();
            seen.add(acked.get());
        }
        tell("scope", seen);
    }

    private static void individual() throws Exception {
        List<Object> seen = new ArrayList<>();
        try (Connection connection = connection("", null, true)) {
            Session session = connection.createSession(false, 4);
            Destination from = destination(session, false);
            send(connection, from, true, numbers(6));
            acked.set(0);
            MessageConsumer consumer = session.createConsumer(from);
            for (int i = 0; i < 6; i++) {
                Message message = consumer.receive(PATIENCE_MS);
                if (i % 2 == 1) {
                    message.acknowledge();
                }
                seen.add(acked.get());
            }
            session.close();
            rest(connection, from, seen, 3);
        }
        tell("individual", seen);
    }

    /* Two of five are handed out, none is settled by hand: how many a browser sees, and what the
     * next session gets. */
    private static void left(int mode) throws Exception {
        List<Object> seen = new ArrayList<>();
        try (Connection connection = connection("", null, true)) {
            Session session = connection.createSession(mode == 0, mode);
            Destination from = destination(session, false);
            send(connection, from, true, numbers(5));
            receive(session.createConsumer(from), 2, seen);
            Session other = connection.createSession(false, 1); /* a browser's close commits */
            seen.add(Collections.list(other.createBrowser((Queue) from).getEnumeration()).size());
            session.close();
            rest(connection, from, seen, mode == 1 || mode == 3 ? 3 : 5);
        }
        tell("left " + MODES[mode], seen);
    }

    private interface Call {
        void run() throws Exception;
    }

    private static void refused(List<Object> seen, Call call) {
        try {
            call.run();
            seen.add("done");
        } catch (Exception error) {
            seen.add(error.getClass().getSimpleName() + ": " + error.getMessage());
        }
    }

    private static void refusals() throws Exception {
        List<Object> seen = new ArrayList<>();
        try (Connection connection = connection("&jms.prefetchPolicy.all=0", null, true)) {
            Session session = connection.createSession(false, 1);
            MessageConsumer consumer = session.createConsumer(destination(session, false));
            refused(seen, () -> consumer.setMessageListener(message -> { }));
        }
        try (Connection connection = connection("", null, true)) {
            Session session = connection.createSession(false, 1);
            session.createConsumer(destination(session, false)).setMessageListener(message -> { });
            MessageConsumer consumer = session.createConsumer(destination(session, false));
            refused(seen, () -> consumer.receive(10));
            Session transacted = connection.createSession(true, 0);
            refused(seen, transacted::recover);
            refused(seen, session::commit);
            refused(seen, session::rollback);
            Session other = connection.createSession(false, 2);
            other.close();
            refused(seen, other::recover);
        }
        tell("refusals", seen);
    }

    /* Options of a broker's URI, and of a destination's, which come before them: how many are
     * acknowledged when each of seventy is handed out; how often one comes that is rolled back. */
    private static void uri() throws Exception {
        List<Object> seen = new ArrayList<>();
        String options = "&jms.optimizeAcknowledge=true&jms.optimizeAcknowledgeTimeOut=30000"
            + "&jms.prefetchPolicy.queuePrefetch=12&jms.prefetchPolicy.topicPrefetch=20"
            + "&jms.redeliveryPolicy.maximumRedeliveries=2"
            + "&jms.redeliveryPolicy.initialRedeliveryDelay=20"
            + "&jms.redeliveryPolicy.redeliveryDelay=20";
        try (Connection connection = connection(options, null, true)) {
            for (boolean topic : new boolean[] {false, true}) {
                for (String own : new String[] {"", "?consumer.prefetchSize=100"}) {
                    Session session = connection.createSession(false, 1);
                    String name = "d" + names++ + own;
                    Destination from = topic ? session.createTopic(name) : session.createQueue(name);
                    MessageConsumer consumer = session.createConsumer(from);
                    acked.set(0);
                    send(connection, from, false, numbers(70));
                    for (int i = 0; i < 70 && consumer.receive(PATIENCE_MS) != null; i++) {
                        seen.add(acked.get());
                    }
                    session.close();
                }
            }
            Session session = connection.createSession(true, 0);
            Destination from = session.createQueue("d" + names++);
            send(connection, from, true, "x");
            MessageConsumer consumer = session.createConsumer(from);
            for (int i = 0; i < 3; i++) {
                receive(consumer, 1, seen);
                session.rollback();
            }
            dead(connection, seen, 1);
        }
        tell("uri", seen);
    }
}
