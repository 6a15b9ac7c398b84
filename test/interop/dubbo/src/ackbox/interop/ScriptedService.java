package ackbox.interop;

public interface ScriptedService {
  Object call(String body) throws Exception;
}
