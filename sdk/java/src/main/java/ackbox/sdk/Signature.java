package ackbox.sdk;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.List;
import java.util.function.Function;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Standard Webhooks: HMAC-SHA256 over id.timestamp.body, the very bytes. One signature that fits is enough. */
public final class Signature {
  private static final Duration TOLERANCE = Duration.ofMinutes(5);
  private final List<byte[]> keys;

  /** {@code secrets}: whsec_ and base64; two during a rotation. {@code npx ackbox key secret DOWNSTREAM} prints it. */
  public Signature(List<String> secrets) {
    if (secrets.isEmpty()) throw new IllegalArgumentException("a secret is needed: `npx ackbox key secret DOWNSTREAM` prints it");
    this.keys = secrets.stream().map(Signature::keyOf).toList();
  }

  /** {@code header} gives a header of the request, or null. A signature older than five minutes is wrong too. */
  public boolean isValid(Function<String, String> header, byte[] body) {
    String timestamp = header.apply("webhook-timestamp");
    if (!isSigned(header, body)) return false;
    long age = Math.abs(Instant.now().getEpochSecond() - Long.parseLong(timestamp));
    return age <= TOLERANCE.toSeconds();
  }

  /** Of any age: a message of a queue may have waited for long. */
  boolean isSigned(Function<String, String> header, byte[] body) {
    String id = header.apply("webhook-id");
    String timestamp = header.apply("webhook-timestamp");
    String signatures = header.apply("webhook-signature");
    if (id == null || timestamp == null || signatures == null) return false;
    // With a dot in the id, the id could hold the time, and the time a part of the body: what is signed would be the same.
    if (!id.matches("[A-Za-z0-9_-]+") || !timestamp.matches("[0-9]{1,12}")) return false;
    for (byte[] key : keys) {
      byte[] right = sign(key, id + "." + timestamp + ".", body);
      for (String given : signatures.split(" "))
        if (MessageDigest.isEqual(given.getBytes(StandardCharsets.UTF_8), right)) return true;
    }
    return false;
  }

  private static byte[] sign(byte[] key, String before, byte[] body) {
    try {
      Mac mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(key, "HmacSHA256"));
      mac.update(before.getBytes(StandardCharsets.UTF_8));
      return ("v1," + Base64.getEncoder().encodeToString(mac.doFinal(body))).getBytes(StandardCharsets.UTF_8);
    } catch (GeneralSecurityException error) {
      throw new IllegalStateException(error);
    }
  }

  private static byte[] keyOf(String secret) {
    try {
      byte[] key = Base64.getDecoder().decode(secret.replaceFirst("^whsec_", ""));
      if (key.length >= 24) return key;
    } catch (IllegalArgumentException | NullPointerException wrong) {
      // The secret itself is never named.
    }
    throw new IllegalArgumentException("a secret must be whsec_ and base64 of 24 bytes or more: `npx ackbox key secret DOWNSTREAM` prints it");
  }
}
