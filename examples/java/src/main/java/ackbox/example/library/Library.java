package ackbox.example.library;

/** The service that Ackbox calls, by Triple as JSON. The JSON has the members of the classes. */
public interface Library {
  Answer onMaterial(Material material);

  class Material implements java.io.Serializable {
    public int material;
    public String title;

    public int getMaterial() { return material; }
    public void setMaterial(int v) { material = v; }
    public String getTitle() { return title; }
    public void setTitle(String v) { title = v; }
  }

  class Answer implements java.io.Serializable {
    public boolean shelved;

    public boolean isShelved() { return shelved; }
    public void setShelved(boolean v) { shelved = v; }
  }
}
