import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.elasticsearch.Version;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.env.Environment;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.node.Node;
import org.elasticsearch.plugins.Plugin;
import org.elasticsearch.reindex.ReindexPlugin;
import org.elasticsearch.transport.Netty4Plugin;

/**
 * Starts a genuine Elasticsearch node from its jars, in the foreground: Maven Central has the server's jars
 * and not its distribution.
 *
 * <p>Arguments: {@code HOME SETTING=VALUE ...}, where a value with commas is a list; or {@code --version}.
 */
public final class ElasticsearchNode extends Node {
  /** HTTP, and what _update_by_query and _delete_by_query need. */
  private static final List<Class<? extends Plugin>> PLUGINS = List.of(Netty4Plugin.class, ReindexPlugin.class);

  private ElasticsearchNode(Environment environment) {
    super(environment, PLUGINS, false);
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length == 0 || arguments[0].equals("--version")) {
      System.out.println("Elasticsearch " + Version.CURRENT + " on Java " + System.getProperty("java.version"));
      return;
    }
    Node node = new ElasticsearchNode(environment(arguments)).start();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> close(node)));
    new CountDownLatch(1).await();
  }

  private static Environment environment(String[] arguments) throws Exception {
    Path home = Paths.get(arguments[0]).toAbsolutePath();
    Path config = Files.createDirectories(home.resolve("config"));
    Settings.Builder settings = Settings.builder().put("path.home", home);
    for (int at = 1; at < arguments.length; at++) {
      String[] pair = arguments[at].split("=", 2);
      if (pair[1].contains(",")) {
        settings.putList(pair[0], pair[1].split(","));
      } else {
        settings.put(pair[0], pair[1]);
      }
    }
    return InternalSettingsPreparer.prepareEnvironment(settings.build(), Map.of(), config, () -> "localhost");
  }

  private static void close(Node node) {
    try {
      node.close();
    } catch (Exception failed) {
      failed.printStackTrace();
    }
  }
}
