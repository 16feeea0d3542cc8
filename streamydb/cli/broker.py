"""`streamydb broker`: the embedded Kafka broker in the foreground, for other machines if asked."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated

import typer

from streamydb.cli.common import EXIT_FAILED, EXIT_USAGE, fail, read_file, read_settings, say
from streamydb.cli.options import Home

_LOOK_S = 1.0
_PLACE = re.compile(r".+:[0-9]{1,5}")


def broker(
    home: Home = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 is every one.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 9092,
    advertise: Annotated[
        str | None, typer.Option(help="host:port by which clients reach it, if not by these.")
    ] = None,
    properties: Annotated[
        Path | None, typer.Option(help="Kafka's properties that win over ours: TLS, users.")
    ] = None,
    heap_mb: Annotated[int, typer.Option(help="The JVM's largest heap.", min=64)] = 1024,
) -> None:
    """Run one Kafka broker from jars in the foreground, until Ctrl-C.

    One node keeps one copy: for more, take a Kafka cluster. Without --properties everybody who
    reaches the address may do everything.
    """
    from streamydb.local.broker import BrokerError, EmbeddedBroker
    from streamydb.local.broker.ports import authority, free_port, is_free
    from streamydb.local.signals import stop_event

    if not is_free(0, host):
        fail(f"--host {host} is no address of this machine: 0.0.0.0 is every one", EXIT_USAGE)
    if advertise is not None and not _PLACE.fullmatch(advertise):
        fail(f"--advertise {advertise}: give it as host:port", EXIT_USAGE)

    settings = read_settings(home=home)
    # The address at which this machine reaches what listens on `host`.
    try:
        every = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        every = False
    reached = "127.0.0.1" if every else host
    address = advertise or authority(reached, port)
    # Properties of a broker that others reach; the controller stays on this machine.
    controller = free_port(besides=port)
    all_properties = {
        "listeners": f"BROKER://{authority(host, port)},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"BROKER://{address}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
    } | _read(properties)
    kafka = EmbeddedBroker(
        settings.home, port=port, host=reached, properties=all_properties, heap_mb=heap_mb
    )
    try:
        with stop_event() as ended, kafka:
            say(f"Kafka broker: {address}, data in {settings.home / 'broker'}")
            while kafka.alive and not ended.wait(_LOOK_S):
                pass
            if not ended.is_set():
                fail(f"the broker has ended; its log is {kafka.log_file}", EXIT_FAILED)
    except BrokerError as error:
        fail(str(error))
    say("Kafka broker: stopped")


def _read(file: Path | None) -> dict[str, str]:
    from streamydb.local.broker.config import parse_properties

    if file is None:
        return {}
    text = read_file(file)
    try:
        return parse_properties(text.decode())
    except UnicodeDecodeError:  # what Java writes such files in
        return parse_properties(text.decode("latin-1"))
