import com.fasterxml.jackson.databind.ObjectMapper;
import generated.DefaultApi;
import generated.client.ApiClient;
import generated.client.ApiException;
import generated.model.*;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The tour of a facade with the client that openapi-generator makes for Java. */
public final class Program {
  /**
   * Reads the first changes of the accounts. The generated method waits for the end of the answer,
   * and a stream has none: so only its types are used.
   */
  static List<Object> changes(String url, ObjectMapper json, int count) throws Exception {
    HttpRequest request =
        HttpRequest.newBuilder(URI.create(url + "/v1/changes?since=0&prefix=acct/")).build();
    List<Object> found = new ArrayList<>();
    String kind = "";
    try (var lines =
        HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofLines()).body()) {
      var each = lines.iterator();
      while (found.size() < count && each.hasNext()) {
        String line = each.next();
        if (line.startsWith("event: ")) {
          kind = line.substring(7);
        } else if (line.startsWith("data: ") && kind.equals("change")) {
          Change change = json.readValue(line.substring(6), Change.class);
          found.add(List.of(change.getKey(), change.getAfter()));
        }
      }
    }
    return found;
  }

  public static void main(String[] arguments) throws Exception {
    String url = arguments[0];
    ApiClient client = new ApiClient();
    client.updateBaseUri(url);
    ObjectMapper json = client.getObjectMapper();
    DefaultApi api = new DefaultApi(client);

    Result first = api.putValue("acct/a b", 100, null, null, null, null, null, null);
    api.putValue("acct/2", Map.of("owner", "ann"), null, null, null, null, null, null);
    Object got = api.getValue("acct/a b", null, null, null, null, null);
    Check old = new Check().key("acct/a b").version(first.getSeq()).ge(new Operand(1.0));
    AddUpdate take = new AddUpdate().op(AddUpdate.OpEnum.ADD).key("acct/a b").by(-30.0).min(0.0);
    PutUpdate order = new PutUpdate().op(PutUpdate.OpEnum.PUT).key("order/1").value("open");
    Transaction transfer =
        new Transaction()
            .addChecksItem(old)
            .addUpdatesItem(new Update(take))
            .addUpdatesItem(new Update(order))
            .addReadsItem(new Read("acct/a b"));
    Result made = api.postTransaction(transfer, null, null, null);
    Check again = new Check().key("order/1").exists(false);
    Result refused =
        api.postTransaction(new Transaction().addChecksItem(again), null, null, null);
    ReadRequest wanted = new ReadRequest().addKeysItem("acct/a b").addKeysItem("nothing");
    Map<String, Entry> reading = api.readValues(wanted).getEntries();
    Entries page = api.listValues("acct/", null, null, 1L, null, null, null, null);
    Entries rest = api.listValues(null, null, null, null, page.getCursor(), null, null, null);
    List<String> keys = new ArrayList<>();
    page.getEntries().forEach(entry -> keys.add(entry.getKey()));
    rest.getEntries().forEach(entry -> keys.add(entry.getKey()));
    ProblemDetails problem = null;
    try {
      api.getValue("nothing", null, null, null, null, null);
    } catch (ApiException error) {
      problem = json.readValue(error.getResponseBody(), ProblemDetails.class);
    }

    Map<String, Object> seen = new LinkedHashMap<>();
    seen.put("got", got);
    seen.put("reads", made.getReads());
    FailedCheck failed = refused.getFailed().get(0);
    seen.put("refused", List.of(refused.getStatus(), refused.getCode(), failed.getKey()));
    seen.put("absent", reading.containsKey("nothing") && reading.get("nothing") == null);
    seen.put("keys", keys);
    seen.put("problem", List.of(problem.getStatus(), problem.getType()));
    seen.put("changes", changes(url, json, 3));
    System.out.println(json.writeValueAsString(seen));
    System.exit(0);
  }
}
