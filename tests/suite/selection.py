"""Which tests belong to which run: all lists are here."""

from __future__ import annotations

from dataclasses import dataclass

#: Without arguments: all but those that are marked long.
NOT_LONG = ("-m", "not long")

#: tests/run --smoke: some of each wing, from the wire to unmodified programs. Two minutes are the limit, on two cores.
SMOKE = (
    "tests/unit/agent/test_agent_config.py",
    "tests/unit/bench/test_bench_results.py",
    "tests/unit/bpf/test_kept_interface.py",
    "tests/unit/cli/test_status_rates.py",
    "tests/unit/code/test_scripts.py",
    "tests/unit/deploy/test_units.py",
    "tests/unit/documents/test_documented_limits.py",
    "tests/unit/host/test_rules.py",
    "tests/unit/library/test_toml_positions.py",
    "tests/unit/messages/test_vectors.py",
    "tests/unit/proxy/test_policy.py",
    "tests/unit/ulp/test_ulp_http2.py::test_frames_are_pdus_however_they_arrive",
    "tests/model/test_link.py",
    "tests/link/test_afxdp_queue.py::test_every_size_crosses_both_ways",
    "tests/programs/test_fetchers.py::test_curl_fetches_and_the_hash_is_right",
    "tests/system/agent/test_agent_metrics.py::test_queues_and_what_processes_have_done",
    "tests/system/aio/test_aio.py::test_sock_calls",
    "tests/system/documents/test_c_examples.py::test_fetch",
    "tests/system/hostile/test_hostile_host.py::test_a_violation_ends_the_channel_and_nothing_else",
    "tests/system/interposer/test_preload.py::test_curl_fetches_a_file",
    "tests/system/operate/test_dev.py::test_a_command_is_offloaded_loopback_included",
    "tests/system/operate/test_proxy.py::test_a_connection_is_carried_and_shown",
    "tests/system/processes/test_inherit.py::test_program[parent_and_child_alternate]",
    "tests/system/protocols/test_python_ulp.py::test_pdus_of_all_sizes_both_ways",
    "tests/system/python/test_install.py::test_a_client",
    "tests/system/python/test_python_socket.py",
    "tests/system/sockets/test_libxts.py::test_program[threads_share_a_channel]",
    "tests/system/tls/test_python_tls.py::test_one_argument",
    "tests/system/waiting/test_mixed.py",
    "tests/system/wire/test_switch.py::test_each_process_has_its_queue",
    "tests/system/worker/test_worker.py",
)

#: Folders of tests that --smoke has nothing of: those tests are long, or need what another machine may not have.
NOT_IN_SMOKE = frozenset(
    {"arm64", "attack", "chaos", "dpu", "fuzz", "packages", "stress", "system/versions", "tls", "vm"}
)


@dataclass(frozen=True)
class Longer:
    """What tests/run --all runs after the tests that are not long: `command`, at the top of the checkout."""

    name: str
    command: tuple[str, ...]


#: Hours in all. "pytest" is for a run of tests as without arguments.
LONGER = (
    Longer("long tests", ("pytest", "-m", "long")),
    Longer("fuzzing, a minute for each target", ("tests/fuzz/run", "--seconds", "60")),
    Longer("chaos, shared memory", ("tests/chaos/run", "--way", "shm", "--seconds", "600")),
    Longer("chaos, AF_XDP", ("tests/chaos/run", "--way", "afxdp", "--seconds", "600")),
    Longer("chaos, a relay", ("tests/chaos/run", "--way", "relay", "--seconds", "300")),
    Longer("chaos, a switch that loses frames", ("tests/chaos/run", "--way", "lossy", "--seconds", "300")),
    Longer("stress, shared memory", ("tests/stress/run", "--queue", "shm", "--duration-s", "300")),
)
