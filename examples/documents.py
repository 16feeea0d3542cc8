"""The document layer: recipes with indexes, partial updates, pages, and a pantry beside them.

    make up
    python examples/documents.py [URL]

A layer is a library over the client: nothing is deployed. It prints:

    mains of up to 40 minutes: pancakes (20), omelette (25), risotto (35)
    a page: pancakes, omelette; somebody speeds risotto up; the next page still: risotto (35)
    now: risotto (15), pancakes (20), omelette (25)
    two recipes for the slug "risotto": no, by_slug has it for risotto
    pancakes are cooked: 4 eggs left
    an omelette is cooked: 1 egg left
    another one is not: 2 eggs are missing
    cooked: omelette (1), pancakes (1)
"""

from __future__ import annotations

from typing import Any

from common import clear, connect
from streamydb.client import Client, View
from streamydb_layers.documents import Collection
from streamydb_layers.errors import UniqueViolationError

RECIPES = [
    ("pancakes", "main", 20, 2), ("omelette", "main", 25, 3), ("risotto", "main", 35, 0),
    ("lasagne", "main", 90, 1), ("sorbet", "dessert", 30, 0),
]  # fmt: skip
EGGS = "pantry/eggs"


class NotEnoughError(Exception):
    """The pantry lacks something."""


def named(recipes: Any) -> str:
    """Return names and minutes."""
    return ", ".join(f"{each.id} ({each.data['time']['minutes']})" for each in recipes)


def fill(recipes: Collection) -> None:
    """Write documents, and make an index before and another one after there are any."""
    recipes.create_index("by_time", ["course", "time.minutes"])
    for name, course, minutes, eggs in RECIPES:
        time = {"minutes": minutes}
        recipes.put(name, {"slug": name, "course": course, "time": time, "eggs": eggs})
    recipes.create_index("by_slug", ["slug"], unique=True)
    recipes.create_index("by_cooked", ["cooked"])


def scan(recipes: Collection) -> None:
    """Scan an index page by page: all pages are of one snapshot, whatever is written meanwhile."""
    quick: dict[str, Any] = {"equals": ["main"], "le": 40}
    print("mains of up to 40 minutes:", named(recipes.find("by_time", **quick).documents))
    page = recipes.find("by_time", **quick, limit=2)
    recipes.update("risotto", set={"time.minutes": 15})
    rest = recipes.find("by_time", **quick, limit=2, cursor=page.cursor)
    print(
        f"a page: {', '.join(each.id for each in page.documents)}; somebody speeds risotto up; "
        f"the next page still: {named(rest.documents)}"
    )
    print("now:", named(recipes.find("by_time", **quick).documents))


def twice(recipes: Collection) -> None:
    """Break a unique index: the document is not written."""
    try:
        recipes.insert({"slug": "risotto", "course": "main"}, document_id="risotto-2")
    except UniqueViolationError as error:
        print(f'two recipes for the slug "risotto": no, {error.index} has it for {error.other}')


def cook(db: Client, recipes: Collection, name: str) -> int:
    """Count a recipe and take its eggs, in one transaction over a document and another key."""

    def cooked(view: View) -> int:
        here = recipes.within(view)
        left = view.get(EGGS) - (here.get(name) or {})["eggs"]
        if left < 0:
            raise NotEnoughError(f"{-left} eggs are missing")
        here.update(name, inc={"cooked": 1})
        view.put(EGGS, left)
        return int(left)

    return db.run(cooked)


def main() -> None:
    """Cook."""
    with connect() as db:
        clear(db, "doc/recipes/")
        recipes = Collection(db, "recipes")
        fill(recipes)
        scan(recipes)
        twice(recipes)
        db.put(EGGS, 6)
        print(f"pancakes are cooked: {cook(db, recipes, 'pancakes')} eggs left")
        print(f"an omelette is cooked: {cook(db, recipes, 'omelette')} egg left")
        try:
            cook(db, recipes, "omelette")
        except NotEnoughError as error:
            print("another one is not:", error)
        most = recipes.find("by_cooked", ge=1).documents
        print("cooked:", ", ".join(f"{each.id} ({each.data['cooked']})" for each in most))


if __name__ == "__main__":
    main()
