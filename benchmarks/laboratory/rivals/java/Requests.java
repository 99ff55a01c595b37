import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;

/**
 * What a client in the benchmark of rivals is asked. It takes requests from its standard input,
 * answers on its standard output, and ends with its input. Numbers are big-endian; bodies are their
 * count, the length of each, then all of their bytes.
 *
 * <p>All that is timed is timed by the client: bodies are here before the clock starts, and those
 * received go back after it stopped.
 */
final class Requests {
    private static final byte OK = 0;
    private static final byte FAILED = 1;
    private static final int PIPE_BYTES = 1 << 16;

    /** What is connected, and answers requests, each of which begins with a byte. */
    interface Answering {
        /** Which server it is, and which library this is. */
        String server();

        /** Read the rest of a request, do it, and write the answer. */
        void answer(int request, DataInputStream in, DataOutputStream out) throws Exception;
    }

    /** A client, connected, with a queue or a stream of its own. */
    interface Client extends Answering {
        /** Publish with at most so many unconfirmed; the seconds until all are confirmed. */
        double publish(byte[][] bodies, int outstanding) throws Exception;

        /** Receive as many bodies as there is room for; the seconds that took. */
        double consume(byte[][] bodies, int ackEvery) throws Exception;

        @Override
        default void answer(int request, DataInputStream in, DataOutputStream out)
                throws Exception {
            Requests.answer(request, this, in, out);
        }
    }

    interface Connecting {
        Answering connect() throws Exception;
    }

    private Requests() {}

    /** Answer until the input ends, or something fails; then end the process. */
    static void serve(Connecting connecting) throws Exception {
        var from = new FileInputStream(FileDescriptor.in);
        var to = new FileOutputStream(FileDescriptor.out);
        var in = new DataInputStream(new BufferedInputStream(from, PIPE_BYTES));
        var out = new DataOutputStream(new BufferedOutputStream(to, PIPE_BYTES));
        try {
            var client = connecting.connect();
            out.writeByte(OK);
            writeText(out, client.server());
            out.flush();
            for (int request = in.read(); request >= 0; request = in.read()) {
                client.answer(request, in, out);
                out.flush();
            }
        } catch (Exception error) {
            error.printStackTrace();
            out.writeByte(FAILED);
            writeText(out, said(error));
            out.flush();
        }
        System.exit(0); // threads of the connections go on otherwise
    }

    private static void answer(int request, Client client, DataInputStream in, DataOutputStream out)
            throws Exception {
        switch (request) {
            case 'p': {
                int outstanding = in.readInt();
                int times = in.readInt();
                byte[][] bodies = readBodies(in);
                var seconds = new double[times];
                for (int i = 0; i < times; i++) {
                    seconds[i] = client.publish(bodies, outstanding);
                }
                out.writeByte(OK);
                for (double each : seconds) {
                    out.writeDouble(each);
                }
                break;
            }
            case 'c': {
                int ackEvery = in.readInt();
                var bodies = new byte[in.readInt()][];
                double seconds = client.consume(bodies, ackEvery);
                out.writeByte(OK);
                out.writeDouble(seconds);
                writeBodies(out, bodies);
                break;
            }
            default:
                throw new IOException("no request begins with the byte " + request);
        }
    }

    private static byte[][] readBodies(DataInputStream in) throws IOException {
        var bodies = new byte[in.readInt()][];
        for (int i = 0; i < bodies.length; i++) {
            bodies[i] = new byte[in.readInt()];
        }
        for (byte[] body : bodies) {
            in.readFully(body);
        }
        return bodies;
    }

    private static void writeBodies(DataOutputStream out, byte[][] bodies) throws IOException {
        for (byte[] body : bodies) {
            out.writeInt(body.length);
        }
        for (byte[] body : bodies) {
            out.write(body);
        }
    }

    /** Answer with a text: its length, then its bytes, in UTF-8. */
    static void answerText(DataOutputStream out, String text) throws IOException {
        out.writeByte(OK);
        writeText(out, text);
    }

    /** A text of a request. */
    static String readText(DataInputStream in) throws IOException {
        var bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static void writeText(DataOutputStream out, String text) throws IOException {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    private static String said(Throwable error) {
        return error.getCause() == null ? error.toString() : error + ": " + said(error.getCause());
    }
}
