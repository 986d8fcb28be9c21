// Curator's own locks, for tests beside ours.
//
// Curator HOSTS PATH KIND hold FILE            holds it as long as FILE is there, and says so
// Curator HOSTS PATH KIND TIMES COMMAND...     runs a command so many times, with the lock each time
//
// KIND is mutex, read or write.

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

public class Curator {
    public static void main(String[] args) throws Exception {
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new RetryOneTime(100))) {
            client.start();
            InterProcessLock lock = lock(client, args[1], args[2]);
            if (args[3].equals("hold")) {
                hold(lock, Path.of(args[4]));
                return;
            }
            for (int times = Integer.parseInt(args[3]); times > 0; times--) {
                lock.acquire();
                try {
                    String[] command = Arrays.copyOfRange(args, 4, args.length);
                    if (new ProcessBuilder(command).inheritIO().start().waitFor() != 0) {
                        System.exit(1);
                    }
                } finally {
                    lock.release();
                }
            }
        }
    }

    static InterProcessLock lock(CuratorFramework client, String path, String kind) {
        switch (kind) {
            case "mutex":
                return new InterProcessMutex(client, path);
            case "read":
                return new InterProcessReadWriteLock(client, path).readLock();
            case "write":
                return new InterProcessReadWriteLock(client, path).writeLock();
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    static void hold(InterProcessLock lock, Path file) throws Exception {
        lock.acquire();
        System.out.println("granted");
        System.out.flush();
        while (Files.exists(file)) {
            Thread.sleep(20);
        }
        lock.release();
    }
}
