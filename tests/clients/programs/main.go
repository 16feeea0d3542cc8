// The tour of a facade with the client that openapi-generator makes for Go.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	g "example.org/streamydb/generated"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// changes reads the first changes of the accounts. The generated method waits for the end of the
// answer, and a stream has none: so only its types are used.
func changes(url string, count int) [][]any {
	answer, err := http.Get(url + "/v1/changes?since=0&prefix=acct/")
	check(err)
	defer answer.Body.Close()
	found := [][]any{}
	lines := bufio.NewScanner(answer.Body)
	kind := ""
	for len(found) < count && lines.Scan() {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			kind = name
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && kind == "change" {
			var change g.Change
			check(json.Unmarshal([]byte(data), &change))
			found = append(found, []any{change.Key, change.After})
		}
	}
	return found
}

func main() {
	url, ctx := os.Args[1], context.Background()
	configuration := g.NewConfiguration()
	configuration.Servers = g.ServerConfigurations{{URL: url}}
	api := g.NewAPIClient(configuration).DefaultAPI

	first, _, err := api.PutValue(ctx, "acct/a b").Body(100).Execute()
	check(err)
	_, _, err = api.PutValue(ctx, "acct/2").Body(map[string]any{"owner": "ann"}).Execute()
	check(err)
	got, _, err := api.GetValue(ctx, "acct/a b").Execute()
	check(err)

	old := g.NewCheck()
	old.SetKey("acct/a b")
	old.SetVersion(first.Seq)
	old.SetGe(g.Float64AsOperand(g.PtrFloat64(1)))
	take := g.NewAddUpdate("add", "acct/a b", -30)
	take.SetMin(0)
	order := g.NewPutUpdate("put", "order/1", "open")
	txn := g.NewTransaction()
	txn.SetChecks([]g.Check{*old})
	txn.SetUpdates([]g.Update{g.AddUpdateAsUpdate(take), g.PutUpdateAsUpdate(order)})
	txn.SetReads([]g.Read{g.StringAsRead(g.PtrString("acct/a b"))})
	made, _, err := api.PostTransaction(ctx).Transaction(*txn).Execute()
	check(err)

	again := g.NewCheck()
	again.SetKey("order/1")
	again.SetExists(false)
	txn = g.NewTransaction()
	txn.SetChecks([]g.Check{*again})
	refused, _, err := api.PostTransaction(ctx).Transaction(*txn).Execute()
	check(err)

	request := g.NewReadRequest([]string{"acct/a b", "nothing"})
	reading, _, err := api.ReadValues(ctx).ReadRequest(*request).Execute()
	check(err)
	page, _, err := api.ListValues(ctx).Prefix("acct/").Limit(1).Execute()
	check(err)
	rest, _, err := api.ListValues(ctx).Cursor(page.GetCursor()).Execute()
	check(err)
	keys := []string{}
	for _, entry := range append(page.Entries, rest.Entries...) {
		keys = append(keys, entry.Key)
	}
	_, _, err = api.GetValue(ctx, "nothing").Execute()
	problem := err.(*g.GenericOpenAPIError).Model().(g.ProblemDetails)

	nothing, known := reading.Entries["nothing"]
	seen, err := json.Marshal(map[string]any{
		"got":     got,
		"reads":   made.Reads,
		"refused": []any{refused.Status, refused.GetCode(), refused.Failed[0].Key},
		"absent":  known && nothing == nil,
		"keys":    keys,
		"problem": []any{problem.Status, problem.Type},
		"changes": changes(url, 3),
	})
	check(err)
	fmt.Println(string(seen))
}
