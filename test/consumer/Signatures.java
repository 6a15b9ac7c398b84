package ackbox.sdk;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.Map;

/** Prints for each line of the input, which is an id, a time, a signature and a body in base64, whether the SDK takes the message. */
public class Signatures {
  public static void main(String[] args) throws Exception {
    Signature signature = new Signature(List.of(args[0]));
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] parts = line.split(" ", -1);
      Map<String, String> headers =
          Map.of("webhook-id", text(parts[0]), "webhook-timestamp", text(parts[1]), "webhook-signature", text(parts[2]));
      System.out.println(signature.isSigned(headers::get, Base64.getDecoder().decode(parts[3])));
    }
  }

  static String text(String base64) {
    return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
  }
}
