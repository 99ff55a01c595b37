import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.locks.LockSupport;

/**
 * A network that takes its time: a port on loopback that connects to another one, and holds what is
 * sent back for so long, each way. It is as wide as loopback: bytes under way are not counted.
 */
final class Delay implements Closeable {
    private static final int CHUNK_BYTES = 1 << 16;

    private final ServerSocket listening;
    private final int target;
    private final long delayNs;

    Delay(int target, long delayNs) throws IOException {
        this.target = target;
        this.delayNs = delayNs;
        listening = new ServerSocket(0, 16, InetAddress.getLoopbackAddress());
        run(this::accept);
    }

    int port() {
        return listening.getLocalPort();
    }

    @Override
    public void close() throws IOException {
        listening.close();
    }

    private void accept() throws IOException {
        while (true) {
            Socket from = listening.accept();
            var to = new Socket(InetAddress.getLoopbackAddress(), target);
            from.setTcpNoDelay(true);
            to.setTcpNoDelay(true);
            carry(from, to);
            carry(to, from);
        }
    }

    private void carry(Socket from, Socket to) {
        BlockingQueue<Chunk> underWay = new LinkedBlockingQueue<>();
        run(() -> read(from, underWay));
        run(() -> write(underWay, to));
    }

    private void read(Socket from, BlockingQueue<Chunk> underWay) throws Exception {
        try {
            InputStream in = from.getInputStream();
            var buffer = new byte[CHUNK_BYTES];
            for (int count = in.read(buffer); count > 0; count = in.read(buffer)) {
                underWay.put(new Chunk(java.util.Arrays.copyOf(buffer, count), due()));
            }
        } finally {
            underWay.put(new Chunk(new byte[0], due()));
        }
    }

    private static void write(BlockingQueue<Chunk> underWay, Socket to) throws Exception {
        try (to) {
            OutputStream out = to.getOutputStream();
            for (Chunk chunk = underWay.take(); chunk.bytes.length > 0; chunk = underWay.take()) {
                for (long left = chunk.dueNs - System.nanoTime(); left > 0; ) {
                    LockSupport.parkNanos(left);
                    left = chunk.dueNs - System.nanoTime();
                }
                out.write(chunk.bytes);
            }
        }
    }

    private long due() {
        return System.nanoTime() + delayNs;
    }

    private static void run(Carrying work) {
        var thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception closed) { // by either side, which notices it itself
                return;
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private interface Carrying {
        void run() throws Exception;
    }

    private static final class Chunk {
        final byte[] bytes;
        final long dueNs;

        Chunk(byte[] bytes, long dueNs) {
            this.bytes = bytes;
            this.dueNs = dueNs;
        }
    }
}
