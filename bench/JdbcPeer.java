import java.lang.management.ManagementFactory;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CyclicBarrier;

/**
 * Reads and updates of records through a JDBC driver: a thread for each connection, in a closed loop, as a program on the JVM
 * would do them.
 *
 * Arguments: URL, table of records, records, clients, seconds to warm up, seconds to measure, the share of updates. Prints the
 * operations a second and the CPU seconds an operation, both of the measured time alone: the start of a Java machine and most
 * of its compiling are behind it by then.
 */
class JdbcPeer {
    private static final int FIELDS = 10;
    private static final int BYTES = 100;

    private static volatile boolean measures;
    private static volatile boolean ends;

    public static void main(String[] words) throws Exception {
        String url = words[0], table = words[1];
        int records = Integer.parseInt(words[2]), clients = Integer.parseInt(words[3]);
        long warmup = Math.round(Double.parseDouble(words[4]) * 1000), seconds = Math.round(Double.parseDouble(words[5]) * 1000);
        double updates = Double.parseDouble(words[6]);

        CyclicBarrier ready = new CyclicBarrier(clients + 1);
        List<Client> all = new ArrayList<>();
        for (int number = 0; number < clients; number++) {
            all.add(new Client(url, table, records, updates, ready));
            all.get(number).start();
        }
        ready.await();
        var process = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        Thread.sleep(warmup);
        long cpu = process.getProcessCpuTime(), begun = System.nanoTime();
        measures = true;
        Thread.sleep(seconds);
        measures = false;
        cpu = process.getProcessCpuTime() - cpu;
        long took = System.nanoTime() - begun, done = 0;
        ends = true;
        for (Client client : all) {
            client.join();
            if (client.failed != null) {
                throw client.failed;
            }
            done += client.done;
        }
        System.out.println(done / (took / 1e9) + " " + cpu / 1e9 / done);
    }

    private static final class Client extends Thread {
        private final String url, read, update;
        private final int records;
        private final double updates;
        private final CyclicBarrier ready;
        private final SplittableRandom random = new SplittableRandom();
        private final String[] pool = new String[1000];
        private Exception failed;
        private long done, letters;

        Client(String url, String table, int records, double updates, CyclicBarrier ready) {
            this.url = url;
            this.records = records;
            this.updates = updates;
            this.ready = ready;
            StringBuilder columns = new StringBuilder(), set = new StringBuilder();
            for (int field = 0; field < FIELDS; field++) {
                columns.append(", field").append(field);
                set.append(", field").append(field).append(" = ?");
            }
            read = "SELECT version" + columns + " FROM " + table + " WHERE id = ?";
            update = "UPDATE " + table + " SET version = LAST_INSERT_ID(version + 1)" + set + " WHERE id = ?";
            for (int i = 0; i < pool.length; i++) {
                pool[i] = String.format("%016x", i) + "x".repeat(BYTES - 16);
            }
        }

        @Override
        public void run() {
            try (Connection connection = DriverManager.getConnection(url);
                    PreparedStatement reading = connection.prepareStatement(read);
                    PreparedStatement updating = connection.prepareStatement(update)) {
                ready.await();
                while (!ends) {
                    String key = "user" + (6364136223846000000L + 1 + random.nextInt(records));
                    if (updates > 0 && random.nextDouble() < updates) {
                        update(updating, key);
                    } else {
                        read(reading, key);
                    }
                    if (measures) {
                        done++;
                    }
                }
            } catch (Exception error) {
                failed = error;
            }
        }

        private void read(PreparedStatement reading, String key) throws Exception {
            reading.setString(1, key);
            try (ResultSet rows = reading.executeQuery()) {
                if (!rows.next()) {
                    throw new IllegalStateException("no record " + key);
                }
                letters += rows.getLong(1);
                for (int field = 0; field < FIELDS; field++) {
                    letters += rows.getString(field + 2).length();
                }
            }
        }

        private void update(PreparedStatement updating, String key) throws Exception {
            for (int field = 0; field < FIELDS; field++) {
                updating.setString(field + 1, pool[random.nextInt(pool.length)]);
            }
            updating.setString(FIELDS + 1, key);
            if (updating.executeUpdate() != 1) {
                throw new IllegalStateException("no record " + key);
            }
        }
    }
}
