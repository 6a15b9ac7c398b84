package ackbox.example.dubbo;

/** The service that Ackbox calls, by Triple as JSON. The JSON has the members of the classes. */
public interface Points {
  Answer onShipped(Shipment shipment);

  class Shipment implements java.io.Serializable {
    public String orderId;
    public String userId;
    public long cents;

    public String getOrderId() { return orderId; }
    public void setOrderId(String v) { orderId = v; }
    public String getUserId() { return userId; }
    public void setUserId(String v) { userId = v; }
    public long getCents() { return cents; }
    public void setCents(long v) { cents = v; }
  }

  class Answer implements java.io.Serializable {
    public boolean taken;

    public boolean isTaken() { return taken; }
    public void setTaken(boolean v) { taken = v; }
  }
}
