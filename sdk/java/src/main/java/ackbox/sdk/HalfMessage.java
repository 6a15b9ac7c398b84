package ackbox.sdk;

import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.util.Set;

/** Prepare, do, commit: for a producer whose database Ackbox does not share and which runs no relay. */
public final class HalfMessage {
  private HalfMessage() {}

  /** Runs in the transaction. What it throws rolls back. */
  public interface Work<T> {
    T run(Connection connection) throws Exception;
  }

  /** {@code task} is what Ackbox said of the commit; null: it could not be told, and will find out by its check. */
  public record Done<T>(String taskNo, T result, Ackbox.TaskAnswer task) {}

  /** Whether the transaction committed is not known here. Ackbox asks the check, which knows; nothing is lost and nothing sent by guess. */
  public static final class UnclearCommit extends RuntimeException {
    UnclearCommit(String taskNo, Throwable cause) {
      super("Whether the transaction of the half message " + taskNo + " committed is not known yet: Ackbox asks the check until it is.", cause);
    }
  }

  /**
   * The transaction has committed, so the work must not be done again, but Ackbox refused to commit the message. The cause is the refusal, with its code, like
   * TASK_ROLLED_BACK if somebody has rolled the message back meanwhile.
   */
  public static final class CommitRefused extends RuntimeException {
    CommitRefused(String taskNo, AckboxException cause) {
      super(
          "The transaction of the half message " + taskNo + " has committed and must not run again, but Ackbox refused to commit the message: " + cause.getMessage(),
          cause);
    }
  }

  public static <T> Done<T> run(Ackbox ackbox, Connect connect, Task task, Work<T> work) throws Exception {
    return run(ackbox, connect, task, null, work);
  }

  /**
   * Posts the task as a half message, runs {@code work} in a transaction that begins with the barrier, and commits the message. When the work throws,
   * its transaction and the message are rolled back, and the same error is thrown. A commit whose answer was lost is left to Ackbox's check, which is
   * asked for at once. {@code checkAfter}: how long Ackbox waits before it asks by itself; null: 35 s.
   */
  public static <T> Done<T> run(Ackbox ackbox, Connect connect, Task task, Duration checkAfter, Work<T> work) throws Exception {
    String taskNo = task.taskNo();
    Ackbox.TaskAnswer half = ackbox.prepare(task, checkAfter);
    if (!half.status().equals("PREPARED"))
      throw new Barrier.AlreadyDecided("The half message " + taskNo + " is " + half.status() + " already.", null);

    Worked<T> worked = new Worked<>();
    try {
      Sql.transact(connect, connection -> {
        Barrier.prepared(connection, taskNo);
        worked.result = work.run(connection);
        Barrier.stillPrepared(connection, taskNo);
        worked.isDone = true;
        return null;
      });
    } catch (Exception error) {
      if (!worked.isDone && !(error instanceof Barrier.AlreadyDecided)) {
        rollBack(ackbox, connect, half);
        throw error;
      }
      Ackbox.TaskAnswer told = asked(ackbox, taskNo);
      if (!worked.isDone || (told != null && told.status().equals("CANCELLED"))) throw error;
      if (told == null || told.status().equals("PREPARED")) throw new UnclearCommit(taskNo, error);
      return new Done<>(taskNo, worked.result, told);
    }
    return new Done<>(taskNo, worked.result, commit(ackbox, taskNo));
  }

  private static final class Worked<T> {
    T result;
    /** The work is done and its transaction may be committed, whatever is thrown from here on. */
    boolean isDone;
  }

  /**
   * The same taskNo may be under way a second time, which can still commit: the message is rolled back once the barrier says that none can any more. When
   * that cannot be told, Ackbox's check will find out.
   */
  private static void rollBack(Ackbox ackbox, Connect connect, Ackbox.TaskAnswer half) {
    try {
      if (Barrier.answerCheck(connect, half.taskNo(), half.createdAt()) == Barrier.State.ROLLED_BACK) ackbox.rollback(half.taskNo());
    } catch (SQLException | RuntimeException left) {
      // to the check
    }
  }

  /** The work is committed: no failure if Ackbox cannot be told now, or a proxy answers in its place. A refusal of Ackbox itself is thrown. */
  private static Ackbox.TaskAnswer commit(Ackbox ackbox, String taskNo) {
    try {
      return ackbox.commit(taskNo);
    } catch (AckboxException error) {
      if (error.code == null || error.isTransient()) return null;
      throw new CommitRefused(taskNo, error);
    }
  }

  /** The half message after its check was asked; null where that could not be done now. */
  private static Ackbox.TaskAnswer asked(Ackbox ackbox, String taskNo) {
    try {
      return ackbox.check(taskNo);
    } catch (AckboxException error) {
      // Somebody was faster.
      if (!Set.of("TASK_COMMITTED", "TASK_ROLLED_BACK").contains("" + error.code)) return null;
    }
    try {
      return ackbox.read(taskNo);
    } catch (AckboxException error) {
      return null;
    }
  }
}
