package ackbox.example;

import ackbox.sdk.Ackbox;
import ackbox.sdk.Barrier;
import ackbox.sdk.Connect;
import ackbox.sdk.HalfMessage;
import ackbox.sdk.Signature;
import ackbox.sdk.Task;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.sql.DriverManager;
import java.sql.Statement;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;

/**
 * Half messages on JDBC: POST /pay/TASK_NO pays an order; with ?card=refused it is refused after its account was charged. Ackbox checks at
 * POST /check. Usage: JDBC_URL ACKBOX_URL ACKBOX_KEY CHECK_SECRET PORT java ackbox.example.HalfShop. In production: a pool for JDBC_URL,
 * and Barrier.prune once a day.
 */
public final class HalfShop {
    static final Map<String, String> ENV = System.getenv();
    static final Connect DATABASE = () -> DriverManager.getConnection(ENV.get("JDBC_URL"));
    static final Ackbox ACKBOX = new Ackbox(ENV.get("ACKBOX_URL"), ENV.get("ACKBOX_KEY"));
    // npx ackbox key secret check:order.paid
    static final Signature CHECKS = new Signature(List.of(ENV.get("CHECK_SECRET")));

    public static void main(String[] args) throws IOException {
        int port = Integer.parseInt(ENV.getOrDefault("PORT", "8080"));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/pay/", HalfShop::pay);
        server.createContext("/check", HalfShop::check);
        server.start();
        System.out.println("listening " + server.getAddress().getPort());
    }

    static void pay(HttpExchange exchange) throws IOException {
        String taskNo = exchange.getRequestURI().getPath().substring("/pay/".length());
        boolean isCardGood = !"card=refused".equals(exchange.getRequestURI().getQuery());
        Task task = Task.of("order.paid", "{\"total\": 7}").taskNo(taskNo);
        try {
            var done = HalfMessage.run(ACKBOX, DATABASE, task, connection -> {
                try (Statement statement = connection.createStatement()) {
                    statement.executeUpdate(Shop.PAY);
                }
                if (!isCardGood) throw new IllegalStateException("the card was refused");
                return "paid";
            });
            answer(exchange, 200, done.result());
        } catch (Barrier.AlreadyDecided | HalfMessage.UnclearCommit decided) {
            answer(exchange, 409, decided.getMessage());
        } catch (Exception error) {
            answer(exchange, 500, "" + error.getMessage());
        }
    }

    static void check(HttpExchange exchange) throws IOException {
        byte[] body = exchange.getRequestBody().readAllBytes();
        if (!CHECKS.isValid(exchange.getRequestHeaders()::getFirst, body)) {
            answer(exchange, 401, "");
            return;
        }
        try {
            answer(exchange, 200, Barrier.answerCheck(DATABASE, new String(body, StandardCharsets.UTF_8)).json());
        } catch (Exception away) {
            answer(exchange, 503, "" + away.getMessage()); // no answer: Ackbox checks again
        }
    }

    static void answer(HttpExchange exchange, int status, String text) throws IOException {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(status, bytes.length == 0 ? -1 : bytes.length);
        if (bytes.length > 0) exchange.getResponseBody().write(bytes);
        exchange.close();
    }
}
