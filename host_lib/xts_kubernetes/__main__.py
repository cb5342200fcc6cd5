"""`xts-device-plugin`: see --help."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path

from xts_messages.log_format import handler
from xts_messages.readiness import Readiness
from xts_messages.standard_output import ends_with_reader

from xts_kubernetes.config import Config, ConfigError, load, parser

log = logging.getLogger("xts-device-plugin")


async def serve(config: Config, readiness: Readiness) -> None:
    """Until SIGTERM or SIGINT. OSError: it cannot serve."""
    from xts_kubernetes.kubelet import Registered
    from xts_kubernetes.offered import OfferedDevices, asking
    from xts_kubernetes.plugin import DevicePlugin
    from xts_kubernetes.pod_directory import PodDirectory

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    offered = OfferedDevices(asking(config.endpoint, config.relayed, config.queues), config.period_s)
    await offered.ask()
    registered = Registered(config.kubelet_dir, config.resource, DevicePlugin(config, offered))
    line = f"ready: {config.resource} of {config.endpoint}"
    parts = [offered.watch(), registered.run(lambda: readiness.ready(line, line))]
    if config.pods_socket:
        directory = PodDirectory(config.pods_socket, config.pod_logs, config.pod_resources, config.resource)
        parts.append(directory.run())
    tasks = [asyncio.ensure_future(part) for part in (*parts, stop.wait())]
    done, running = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    readiness.stopping("stopping")
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    for task in done:
        task.result()


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
