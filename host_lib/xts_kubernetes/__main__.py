"""`xts-device-plugin`: see --help."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xts_messages.services.log_format import handler
from xts_messages.services.log_lines import have_standard_descriptors
from xts_messages.services.readiness import Readiness
from xts_messages.terminal.standard_output import ends_with_reader

from xts_kubernetes.config import Config, ConfigError, load, parser

if TYPE_CHECKING:
    from xts_kubernetes.offered import OfferedDevices

log = logging.getLogger("xts-device-plugin")


async def serve(config: Config, readiness: Readiness) -> None:
    """Until SIGTERM or SIGINT. OSError: it cannot serve."""
    from xts_kubernetes.offered import OfferedDevices, asking
    from xts_kubernetes.pod_directory import PodDirectory

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    offered = OfferedDevices(asking(config.endpoint, config.relayed, config.queues), config.period_s)
    await offered.ask()
    async with contextlib.AsyncExitStack() as stack:
        if config.dra:
            parts = _by_dra(config, offered, readiness, stack)
        else:
            parts = [_as_device_plugin(config, offered, readiness)]
        parts.append(offered.watch())
        if config.pods_socket:
            parts.append(PodDirectory(config).run())
        tasks = [asyncio.ensure_future(part) for part in (*parts, stop.wait())]
        done, running = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        readiness.stopping("stopping")
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for task in done:
            task.result()


def _as_device_plugin(config: Config, offered: OfferedDevices, readiness: Readiness) -> Coroutine[Any, Any, object]:
    from xts_kubernetes.kubelet import Registered
    from xts_kubernetes.plugin import DevicePlugin

    line = f"ready: {config.resource} of {config.endpoint}"
    registered = Registered(config.kubelet_dir, config.resource, DevicePlugin(config, offered))
    return registered.run(lambda: readiness.ready(line, line))


def _by_dra(
    config: Config, offered: OfferedDevices, readiness: Readiness, stack: contextlib.AsyncExitStack
) -> list[Coroutine[Any, Any, object]]:
    from xts_kubernetes.api_server import ApiServer
    from xts_kubernetes.dra_driver import DraDriver
    from xts_kubernetes.dra_registration import DraRegistered
    from xts_kubernetes.resource_slices import Publisher

    server = ApiServer(config.kubeconfig)
    stack.push_async_callback(server.close)
    publisher = Publisher(server, offered, config.driver, config.dra)
    line = f"ready: {config.driver} of {config.endpoint}"

    def taken() -> None:
        readiness.ready(line, line)
        publisher.look_again()

    return [DraRegistered(config, DraDriver(config, offered, server).handlers(), taken).run(), publisher.run()]


def _install_interposer(folder: Path) -> int:
    from xts_kubernetes import interposer

    try:
        interposer.install(folder)
    except OSError as error:
        print(f"xts-device-plugin: {error.filename or folder}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


@ends_with_reader
def main(arguments: list[str] | None = None) -> int:
    """Runs until SIGTERM. 0; 1: could not serve; 2: a bad option. What went wrong is on standard error."""
    have_standard_descriptors()
    options = parser().parse_args(arguments)
    if options.install_interposer:
        return _install_interposer(Path(options.install_interposer))
    try:
        config = load(options)
    except ConfigError as error:
        for mistake in str(error).splitlines():
            print(f"xts-device-plugin: {mistake}", file=sys.stderr)
        return 2
    writer = handler(options.log_format, "xts-device-plugin", "xts-device-plugin: %(message)s")
    logging.basicConfig(level=logging.INFO if options.verbose else logging.WARNING, handlers=[writer])
    try:
        asyncio.run(serve(config, Readiness(options.ready_fd)))
    except ImportError as error:
        print(f"xts-device-plugin: {error}: pip install 'xts-offload[kubernetes]'", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"xts-device-plugin: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
