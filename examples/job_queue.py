"""The queue layer: each order charged exactly once, though a worker dies with work in its hands.

    make up
    python examples/job_queue.py [URL]

The layer's procedures are deployed first, into the folder of the pipeline of this machine. It
prints:

    20 orders wait
    a worker claims 5 of them, and is not heard of again
    4 workers charge the others, and those 5 when their time is up
    the first worker comes back: its claim is over, nothing is charged
    20 of 20 orders were charged once; in the queue: Depth(waiting=0, claimed=0)
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from common import clear, connect, folder
from streamydb.client import Client, View
from streamydb_layers.errors import ClaimLostError
from streamydb_layers.queue import Claim, Queue

ORDERS, WORKERS = 20, 4


def order(db: Client, jobs: Queue, number: int) -> None:
    """Take an order: it and the job of charging it are there together, or neither is."""
    taken = db.atomic().put(f"shop/order/{number:02}", {"amount": number, "charged": 0})
    jobs.enqueue_in(taken, f"shop/order/{number:02}")
    taken.commit()


def charge(db: Client, jobs: Queue, claim: Claim) -> bool:
    """Charge an order and end the claim, in one transaction; tell whether the claim held."""

    def charged(view: View) -> None:
        order = view.get(claim.value)
        view.put(claim.value, {**order, "charged": order["charged"] + 1})
        jobs.complete_in(view, claim)

    try:
        db.run(charged)
    except ClaimLostError:
        return False
    return True


def work(db: Client) -> None:
    """Charge what there is, until nothing waits and nobody holds anything."""
    jobs = Queue(db, "charges")
    while True:
        claims = jobs.claim(2, timeout_s=60)
        for claim in claims:
            charge(db, jobs, claim)
        depth = jobs.depth()
        if not claims and depth.waiting + depth.claimed == 0:
            return


def main() -> None:
    """Sell, lose a worker, and charge everybody once all the same."""
    with connect() as db:
        clear(db, "shop/")
        clear(db, "queue/charges/")
        jobs = Queue(db, "charges")
        jobs.deploy(folder())
        for number in range(1, ORDERS + 1):
            order(db, jobs, number)
        print(f"{jobs.depth().waiting} orders wait")
        lost = jobs.claim(5, timeout_s=0.2)
        print(f"a worker claims {len(lost)} of them, and is not heard of again")
        print(f"{WORKERS} workers charge the others, and those {len(lost)} when their time is up")
        with ThreadPoolExecutor(WORKERS) as workers:
            list(workers.map(lambda _: work(db), range(WORKERS)))
        held = [charge(db, jobs, claim) for claim in lost]
        said = "charged again!" if any(held) else "its claim is over, nothing is charged"
        print("the first worker comes back:", said)
        orders = [entry.value for entry in db.scan("shop/order/")]
        once = sum(each["charged"] == 1 for each in orders)
        end = jobs.depth()
        print(f"{once} of {len(orders)} orders were charged once; in the queue: {end}")


if __name__ == "__main__":
    main()
