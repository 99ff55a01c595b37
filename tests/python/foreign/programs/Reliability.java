import com.rabbitmq.client.Channel;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.springframework.amqp.AmqpException;
import org.springframework.amqp.core.AmqpAdmin;
import org.springframework.amqp.core.Binding;
import org.springframework.amqp.core.BindingBuilder;
import org.springframework.amqp.core.DirectExchange;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.MessageDeliveryMode;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.core.ReturnedMessage;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.config.DirectRabbitListenerContainerFactory;
import org.springframework.amqp.rabbit.config.SimpleRabbitListenerContainerFactory;
import org.springframework.amqp.rabbit.connection.ConnectionFactory;
import org.springframework.amqp.rabbit.connection.CorrelationData;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.transaction.RabbitTransactionManager;
import org.springframework.boot.Banner;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.transaction.annotation.Transactional;

/**
 * Messages that must not get lost, with Spring Boot: persistence, lazy queues, acknowledgements by
 * hand, a limit for each consumer, transactions, confirms and returns; dead letters, requests and
 * replies.  What the server at a port did is told in lines; "==" begins a part.
 */
public final class Reliability {
    private static final int PATIENCE_S = 60;
    private static final int TASKS = 20;
    private static final int SHARED = 6;
    private static final String EXCHANGE = "direct.exchange";
    private static final String LAZY = "direct.queue_03";
    /** As a file of properties has them. */
    private static final String[] CONSUMING = {
        "spring.rabbitmq.listener.simple.acknowledge-mode=manual",
        "spring.rabbitmq.listener.simple.prefetch=1",
    };
    private static final String[] TELLING = {
        "spring.rabbitmq.publisher-confirm-type=correlated",
        "spring.rabbitmq.template.mandatory=true",
        "spring.rabbitmq.publisher-returns=true",
    };

    private Reliability() { }

    /** Consumers that acknowledge by hand, and a producer with transactions. */
    @SpringBootConfiguration
    @EnableAutoConfiguration
    static class Consuming {
        @Bean
        RabbitTransactionManager rabbitTransactionManager(ConnectionFactory factory) {
            return new RabbitTransactionManager(factory);
        }

        @Bean
        SimpleRabbitListenerContainerFactory several(ConnectionFactory connections) {
            SimpleRabbitListenerContainerFactory factory =
                    new SimpleRabbitListenerContainerFactory();
            factory.setConnectionFactory(connections);
            factory.setConcurrentConsumers(3);
            factory.setDefaultRequeueRejected(false);
            return factory;
        }

        @Bean
        DirectRabbitListenerContainerFactory direct(ConnectionFactory connections) {
            DirectRabbitListenerContainerFactory factory =
                    new DirectRabbitListenerContainerFactory();
            factory.setConnectionFactory(connections);
            return factory;
        }

        @Bean
        DirectExchange exchange() {
            return new DirectExchange(EXCHANGE);
        }

        @Bean
        Queue created() {
            return new Queue("direct.queue_01");
        }

        @Bean
        Binding create(Queue created, DirectExchange exchange) {
            return BindingBuilder.bind(created).to(exchange).with("create");
        }

        @Bean
        Queue modes() {
            return new Queue("modes");
        }

        @Bean
        Queue lazy() {
            QueueBuilder builder = QueueBuilder.durable(LAZY);
            builder.lazy();
            return builder.build();
        }

        @Bean
        Queue shared() {
            return new Queue("shared");
        }

        @Bean
        Queue tasks() {
            return QueueBuilder.durable("tasks").deadLetterExchange("")
                    .deadLetterRoutingKey("failed").build();
        }

        @Bean
        Queue failed() {
            return new Queue("failed");
        }

        @Bean
        Queue requests() {
            return QueueBuilder.nonDurable("requests").autoDelete().build();
        }

        @Bean
        Queue quiet() {
            return new Queue("quiet");
        }

        @Bean
        Listeners listeners() {
            return new Listeners();
        }

        @Bean
        Producer producer(RabbitTemplate template) {
            return new Producer(template);
        }
    }

    static class Listeners {
        final CountDownLatch created = new CountDownLatch(3);
        final CountDownLatch taken = new CountDownLatch(SHARED);
        final CountDownLatch worked = new CountDownLatch(TASKS);
        final List<String> order = Collections.synchronizedList(new ArrayList<>());
        final CountDownLatch held = new CountDownLatch(1);
        private final CountDownLatch others = new CountDownLatch(SHARED - 1);

        @RabbitListener(queues = "direct.queue_01")
        public void onCreate(String body, Channel channel, Message message) throws IOException {
            long tag = message.getMessageProperties().getDeliveryTag();
            say("listener", body, tag, message.getMessageProperties().isRedelivered(),
                    message.getMessageProperties().getConsumerQueue(),
                    message.getMessageProperties().getReceivedRoutingKey());
            channel.basicAck(tag, false);
            created.countDown();
        }

        /** Of two consumers one holds what it got first until the other has had all the rest. */
        @RabbitListener(queues = "shared", concurrency = "2")
        public void onShared(String body, Channel channel, Message message) throws Exception {
            if (held.getCount() > 0) {
                held.countDown();
                await(others);
            }
            order.add(body);
            channel.basicAck(message.getMessageProperties().getDeliveryTag(), false);
            others.countDown();
            taken.countDown();
        }

        /** A task that fails is rejected, and becomes a dead letter. */
        @RabbitListener(queues = "tasks", containerFactory = "several")
        public void onTask(String body) {
            worked.countDown();
            if (body.equals("task 7")) {
                throw new IllegalStateException("a task that fails");
            }
        }

        @RabbitListener(queues = "requests", containerFactory = "direct")
        public String onRequest(String request) {
            return request.toUpperCase();
        }
    }

    static class Producer {
        private final RabbitTemplate template;

        Producer(RabbitTemplate template) {
            this.template = template;
        }

        @Transactional(rollbackFor = Exception.class, transactionManager =
                "rabbitTransactionManager")
        public void sendMessage(String text, int divisor) {
            template.setChannelTransacted(true);
            template.convertAndSend("quiet", text.getBytes());
            say("sent in a transaction", text, 1 / divisor);
        }
    }

    /** A publisher that is told what became of its messages. */
    @SpringBootConfiguration
    @EnableAutoConfiguration
    static class Telling {
        @Bean
        Sender sender(RabbitTemplate template) {
            return new Sender(template);
        }
    }

    static class Sender implements RabbitTemplate.ConfirmCallback, RabbitTemplate.ReturnsCallback {
        private final RabbitTemplate template;
        private CountDownLatch confirmed;

        Sender(RabbitTemplate template) {
            this.template = template;
        }

        /** Return once its callback is told. */
        void sendMsg(String text, String exchange, String key) throws InterruptedException {
            confirmed = new CountDownLatch(1);
            template.setConfirmCallback(this);
            template.setReturnsCallback(this);
            CorrelationData correlationData = new CorrelationData(text);
            template.convertAndSend(exchange, key, text, message -> {
                message.getMessageProperties().setDeliveryMode(MessageDeliveryMode.PERSISTENT);
                return message;
            }, correlationData);
            await(confirmed);
        }

        /** The cause is the server's word, or that of a client which was quicker. */
        @Override
        public void confirm(CorrelationData correlationData, boolean ack, String cause) {
            say("confirm", correlationData.getId(), ack, cause != null,
                    correlationData.getReturned() != null);
            confirmed.countDown();
        }

        @Override
        public void returnedMessage(ReturnedMessage returned) {
            say("returned", new String(returned.getMessage().getBody()), returned.getReplyCode(),
                    returned.getReplyText(), returned.getExchange(), returned.getRoutingKey(),
                    returned.getMessage().getMessageProperties().getReceivedDeliveryMode());
        }
    }

    public static void main(String[] arguments) throws Exception {
        try (ConfigurableApplicationContext context =
                run(Consuming.class, arguments[0], CONSUMING)) {
            AmqpAdmin admin = context.getBean(AmqpAdmin.class);
            RabbitTemplate template = context.getBean(RabbitTemplate.class);
            Listeners listeners = context.getBean(Listeners.class);
            persist(template);
            declareLazy(template);
            acknowledge(template, listeners);
            share(template, listeners);
            work(template, listeners);
            request(template);
            transact(context.getBean(Producer.class), template, admin);
        }
        try (ConfigurableApplicationContext context = run(Telling.class, arguments[0], TELLING)) {
            Sender sender = context.getBean(Sender.class);
            say("== 003 spring, confirm callback");
            sender.sendMsg("routed", EXCHANGE, "create");
            sender.sendMsg("no exchange", "no.exchange", "create");
            say("== 003 spring, return callback");
            sender.sendMsg("unroutable", EXCHANGE, "create_not");
            say("== what is left");
            AmqpAdmin admin = context.getBean(AmqpAdmin.class);
            for (String queue : List.of("direct.queue_01", "shared", "tasks", "failed", "quiet")) {
                say(queue, admin.getQueueInfo(queue).getMessageCount());
            }
            say("no such queue", admin.getQueueInfo("nowhere"));
        }
    }

    private static ConfigurableApplicationContext run(Class<?> application, String port,
            String[] properties) {
        return new SpringApplicationBuilder(application)
                .web(WebApplicationType.NONE)
                .bannerMode(Banner.Mode.OFF)
                .properties("spring.rabbitmq.host=127.0.0.1", "spring.rabbitmq.port=" + port)
                .properties(properties)
                .run();
    }

    private static void persist(RabbitTemplate template) {
        say("== 003 spring, not persistent");
        template.convertAndSend("modes", "as it is");
        template.convertAndSend("modes", (Object) "changed", message -> {
            message.getMessageProperties().setDeliveryMode(MessageDeliveryMode.NON_PERSISTENT);
            return message;
        });
        tell(template, "modes");
        tell(template, "modes");
    }

    /** A lazy queue gives what it got, and is not what one of the same name without that is. */
    private static void declareLazy(RabbitTemplate template) {
        say("== 003 spring, lazy queue");
        template.convertAndSend(LAZY, "one");
        template.convertAndSend(LAZY, "two");
        tell(template, LAZY);
        tell(template, LAZY);
        try {
            template.execute(channel -> channel.queueDeclare(LAZY, true, false, false, null));
        } catch (AmqpException error) {
            Throwable cause = error;
            while (!(cause instanceof ShutdownSignalException)) {
                cause = cause.getCause();
            }
            say("declared otherwise", ((ShutdownSignalException) cause).getReason());
        }
    }

    private static void tell(RabbitTemplate template, String queue) {
        Message message = template.receive(queue, PATIENCE_S * 1000L);
        say("received", new String(message.getBody()),
                message.getMessageProperties().getReceivedDeliveryMode());
    }

    private static void acknowledge(RabbitTemplate template, Listeners listeners)
            throws Exception {
        say("== 003 spring, acknowledge by hand");
        for (String text : List.of("one", "two", "three")) {
            template.convertAndSend(EXCHANGE, "create", text);
        }
        await(listeners.created);
    }

    private static void share(RabbitTemplate template, Listeners listeners) throws Exception {
        say("== 003 spring, prefetch 1");
        template.convertAndSend("shared", "share 0");
        await(listeners.held);
        for (int i = 1; i < SHARED; i++) {
            template.convertAndSend("shared", "share " + i);
        }
        await(listeners.taken);
        say("taken", listeners.order);
    }

    private static void work(RabbitTemplate template, Listeners listeners) throws Exception {
        say("== dead letters");
        for (int i = 0; i < TASKS; i++) {
            template.convertAndSend("tasks", "task " + i);
        }
        await(listeners.worked);
        Message failed = template.receive("failed", PATIENCE_S * 1000L);
        say("failed", new String(failed.getBody()),
                failed.getMessageProperties().getXDeathHeader().get(0).get("reason"));
    }

    private static void request(RabbitTemplate template) {
        say("== requests");
        template.setReplyTimeout(PATIENCE_S * 1000L);
        for (String request : List.of("one", "two", "three")) {
            say("reply", template.convertSendAndReceive("requests", request));
        }
    }

    private static void transact(Producer producer, RabbitTemplate template, AmqpAdmin admin) {
        say("== 003 spring, transaction");
        producer.sendMessage("committed", 1);
        say("waiting", admin.getQueueInfo("quiet").getMessageCount());
        try {
            producer.sendMessage("rolled back", 0);
        } catch (ArithmeticException error) {
            say("rolled back", error.getMessage(), admin.getQueueInfo("quiet").getMessageCount());
        }
        say("received", new String((byte[]) template.receiveAndConvert("quiet")));
    }

    private static void await(CountDownLatch latch) throws InterruptedException {
        if (!latch.await(PATIENCE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("waited for " + latch.getCount() + " more");
        }
    }

    private static synchronized void say(Object... what) {
        StringBuilder line = new StringBuilder();
        for (Object each : what) {
            line.append(line.length() == 0 ? "" : ", ").append(each);
        }
        System.out.println(line);
    }
}
