import com.rabbitmq.client.Channel;
import java.util.List;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.springframework.amqp.core.AcknowledgeMode;
import org.springframework.amqp.core.AmqpAdmin;
import org.springframework.amqp.core.Binding;
import org.springframework.amqp.core.BindingBuilder;
import org.springframework.amqp.core.DirectExchange;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.MessageDeliveryMode;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.core.ReturnedMessage;
import org.springframework.amqp.rabbit.annotation.EnableRabbit;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.config.DirectRabbitListenerContainerFactory;
import org.springframework.amqp.rabbit.config.SimpleRabbitListenerContainerFactory;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.connection.CorrelationData;
import org.springframework.amqp.rabbit.core.RabbitAdmin;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.transaction.RabbitTransactionManager;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.transaction.annotation.Transactional;

/**
 * Messages that must not get lost, with Spring: persistence, acknowledgements by hand, a limit for
 * each consumer, transactions, confirms and returns, requests and replies.  What the server at a
 * port did is told in lines.
 */
public final class Reliability {
    private static final int PATIENCE_S = 60;
    private static final int TASKS = 20;
    private static final String EXCHANGE = "direct.exchange";

    private Reliability() { }

    @Configuration
    @EnableRabbit
    @EnableTransactionManagement
    static class Application {
        @Bean
        CachingConnectionFactory confirming() {
            CachingConnectionFactory factory = factory();
            factory.setPublisherConfirmType(CachingConnectionFactory.ConfirmType.CORRELATED);
            factory.setPublisherReturns(true);
            return factory;
        }

        @Bean
        CachingConnectionFactory transacting() {
            return factory();
        }

        private CachingConnectionFactory factory() {
            return new CachingConnectionFactory("127.0.0.1", Integer.getInteger("port"));
        }

        @Bean
        RabbitAdmin admin(CachingConnectionFactory transacting) {
            return new RabbitAdmin(transacting);
        }

        @Bean
        RabbitTemplate template(CachingConnectionFactory confirming) {
            RabbitTemplate template = new RabbitTemplate(confirming);
            template.setMandatory(true);
            template.setReplyTimeout(PATIENCE_S * 1000L);
            return template;
        }

        @Bean
        RabbitTemplate transactional(CachingConnectionFactory transacting) {
            RabbitTemplate template = new RabbitTemplate(transacting);
            template.setChannelTransacted(true);
            return template;
        }

        @Bean
        RabbitTransactionManager rabbitTransactionManager(CachingConnectionFactory transacting) {
            return new RabbitTransactionManager(transacting);
        }

        @Bean
        SimpleRabbitListenerContainerFactory manual(CachingConnectionFactory transacting) {
            SimpleRabbitListenerContainerFactory factory =
                    new SimpleRabbitListenerContainerFactory();
            factory.setConnectionFactory(transacting);
            factory.setAcknowledgeMode(AcknowledgeMode.MANUAL);
            factory.setPrefetchCount(1);
            return factory;
        }

        @Bean
        SimpleRabbitListenerContainerFactory several(CachingConnectionFactory transacting) {
            SimpleRabbitListenerContainerFactory factory =
                    new SimpleRabbitListenerContainerFactory();
            factory.setConnectionFactory(transacting);
            factory.setConcurrentConsumers(3);
            factory.setDefaultRequeueRejected(false);
            return factory;
        }

        @Bean
        DirectRabbitListenerContainerFactory direct(CachingConnectionFactory transacting) {
            DirectRabbitListenerContainerFactory factory =
                    new DirectRabbitListenerContainerFactory();
            factory.setConnectionFactory(transacting);
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
        Producer producer(RabbitTemplate transactional) {
            return new Producer(transactional);
        }
    }

    static class Listeners {
        final CountDownLatch created = new CountDownLatch(3);
        final CountDownLatch worked = new CountDownLatch(TASKS);
        private final AtomicInteger fails = new AtomicInteger();

        /** The first delivery goes back, the second is acknowledged. */
        @RabbitListener(queues = "direct.queue_01", containerFactory = "manual")
        public void onCreate(String body, Channel channel, Message message) throws Exception {
            long tag = message.getMessageProperties().getDeliveryTag();
            boolean again = message.getMessageProperties().isRedelivered();
            say("listener", body, tag, again, message.getMessageProperties().getConsumerQueue(),
                    message.getMessageProperties().getReceivedRoutingKey(),
                    message.getMessageProperties().getReceivedDeliveryMode());
            if (again || body.startsWith("not")) {
                channel.basicAck(tag, false);
            } else {
                channel.basicNack(tag, false, true);
            }
            created.countDown();
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
            template.convertAndSend("quiet", text);
            say("sent in a transaction", text, 1 / divisor);
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("port", arguments[0]);
        AnnotationConfigApplicationContext context =
                new AnnotationConfigApplicationContext(Application.class);
        try {
            AmqpAdmin admin = context.getBean(AmqpAdmin.class);
            RabbitTemplate template = context.getBean("template", RabbitTemplate.class);
            Listeners listeners = context.getBean(Listeners.class);
            listen(template, listeners);
            work(template, listeners);
            transact(context.getBean(Producer.class), template, admin);
            confirm(template);
            for (String request : List.of("one", "two", "three")) {
                say("reply", template.convertSendAndReceive("requests", request));
            }
            for (String queue : List.of("direct.queue_01", "tasks", "failed", "quiet")) {
                say(queue, admin.getQueueInfo(queue).getMessageCount());
            }
            say("no such queue", admin.getQueueInfo("nowhere"));
        } finally {
            context.close();
        }
    }

    private static void listen(RabbitTemplate template, Listeners listeners) throws Exception {
        template.convertAndSend(EXCHANGE, "create", "persistent");
        template.convertAndSend(EXCHANGE, "create", "not persistent", message -> {
            message.getMessageProperties().setDeliveryMode(MessageDeliveryMode.NON_PERSISTENT);
            return message;
        });
        await(listeners.created);
    }

    private static void work(RabbitTemplate template, Listeners listeners) throws Exception {
        for (int i = 0; i < TASKS; i++) {
            template.convertAndSend("tasks", "task " + i);
        }
        await(listeners.worked);
        Message failed = template.receive("failed", PATIENCE_S * 1000L);
        say("failed", new String(failed.getBody()),
                failed.getMessageProperties().getXDeathHeader().get(0).get("reason"));
    }

    private static void transact(Producer producer, RabbitTemplate template, AmqpAdmin admin) {
        try {
            producer.sendMessage("rolled back", 0);
        } catch (ArithmeticException error) {
            say("rolled back", error.getMessage(), admin.getQueueInfo("quiet").getMessageCount());
        }
        producer.sendMessage("committed", 1);
        say("committed", template.receiveAndConvert("quiet"), template.receiveAndConvert("quiet"));
    }

    private static void confirm(RabbitTemplate template) throws Exception {
        ConcurrentSkipListSet<String> heard = new ConcurrentSkipListSet<>();
        CountDownLatch callbacks = new CountDownLatch(4);
        template.setConfirmCallback((correlation, ack, cause) -> {
            if (correlation != null) {
                heard.add("confirmed " + correlation.getId() + " " + ack);
                callbacks.countDown();
            }
        });
        template.setReturnsCallback(returned -> {
            heard.add(described(returned));
            callbacks.countDown();
        });
        send(template, EXCHANGE, "create_not", "unroutable");
        send(template, "", "quiet", "routed");
        Message quiet = template.receive("quiet", PATIENCE_S * 1000L);
        say("received", new String(quiet.getBody()),
                quiet.getMessageProperties().getReceivedDeliveryMode());
        CorrelationData failing = new CorrelationData("nowhere");
        template.convertAndSend("no.exchange", "create", "x", failing);
        CorrelationData.Confirm confirm = failing.getFuture().get(PATIENCE_S, TimeUnit.SECONDS);
        say("no exchange", confirm.isAck());
        await(callbacks);
        for (String each : heard) {
            say("heard", each);
        }
    }

    private static void send(RabbitTemplate template, String exchange, String key, String text)
            throws Exception {
        CorrelationData correlation = new CorrelationData(text);
        template.convertAndSend(exchange, key, text, message -> {
            message.getMessageProperties().setDeliveryMode(MessageDeliveryMode.PERSISTENT);
            return message;
        }, correlation);
        CorrelationData.Confirm confirm = correlation.getFuture().get(PATIENCE_S, TimeUnit.SECONDS);
        say("confirmed", text, confirm.isAck(), correlation.getReturned() != null);
    }

    private static String described(ReturnedMessage returned) {
        return "returned " + new String(returned.getMessage().getBody()) + " "
                + returned.getReplyCode() + " " + returned.getReplyText() + " "
                + returned.getExchange() + " " + returned.getRoutingKey();
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
