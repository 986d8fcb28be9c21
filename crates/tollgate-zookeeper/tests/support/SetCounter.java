// Sets what a folder of a stopped ZooKeeper has counted to, by ZooKeeper's own classes.
//
// SetCounter DATA PATH NUMBER      the number that the next sequential node in PATH gets

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.server.DataNode;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

public class SetCounter {
    public static void main(String[] args) throws Exception {
        File data = new File(args[0]);
        FileTxnSnapLog disk = new FileTxnSnapLog(data, data);
        DataTree tree = new DataTree();
        ConcurrentHashMap<Long, Integer> sessions = new ConcurrentHashMap<>();
        tree.lastProcessedZxid = disk.restore(tree, sessions, (header, record, digest) -> {});
        DataNode node = tree.getNode(args[1]);
        node.stat.setCversion(Integer.parseInt(args[2]));
        disk.save(tree, sessions, true);
        disk.close();
        // What is in them is in the snapshot, with the old number.
        try (var files = Files.newDirectoryStream(Path.of(args[0], "version-2"), "log.*")) {
            for (Path log : files) {
                Files.delete(log);
            }
        }
    }
}
