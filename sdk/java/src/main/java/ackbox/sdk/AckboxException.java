package ackbox.sdk;

import java.time.Duration;

/** Ackbox refused, or could not be asked. The code is stable where it was Ackbox that spoke. */
public final class AckboxException extends RuntimeException {
  /** Of the HTTP answer; 0: there was none, and whether a task was accepted is not known. */
  public final int status;

  /** Like TASK_CONFLICT; UNREACHABLE: there was no answer. null: the answer was not Ackbox's. */
  public final String code;

  public final String detail;

  /** How long Ackbox asked to be left alone; zero where it did not. */
  public final Duration retryAfter;

  AckboxException(String message, int status, String code, String detail, Duration retryAfter, Throwable cause) {
    super(message, cause);
    this.status = status;
    this.code = code;
    this.detail = detail;
    this.retryAfter = retryAfter;
  }

  /** Saying the same again may help, and does no harm. */
  public boolean isTransient() {
    return status == 0 || status >= 500 || status == 408 || status == 425 || status == 429;
  }
}
