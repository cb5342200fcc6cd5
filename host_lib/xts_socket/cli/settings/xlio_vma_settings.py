"""The settings of XLIO and VMA, under the names of their variables and in XLIO's JSON file, and our counterparts.

Names are without their prefix: XLIO_RX_POLL and VMA_RX_POLL are both RX_POLL. `key` is our setting, for those that
config_import.py converts; without one, the note says why none is needed, or where the equivalent is set.
"""

from __future__ import annotations

from typing import NamedTuple


class Counterpart(NamedTuple):
    """One of their settings."""

    path: str  # in XLIO's JSON file; "": not there
    names: str  # names of variables, without prefix, separated by blanks
    key: str  # our setting; "": there is none
    note: str


_DEVICE = "set on the device: the proxy's kernel has a setting of its own for it"
_TCP = "the proxy's kernel does TCP: the program sets it with setsockopt(), which is forwarded"
_COMPUTED = "not needed: derived from the queue that the process gets"
_ALWAYS = "not needed: it always works like that"
_NO_THREAD = "not needed: calls run to completion, and the timers are in the proxy"
_SYSCALL = "not needed: the interposer looks up every descriptor, and passes calls on kernel sockets to the kernel"
_HARDWARE = (
    "not needed: hardware queues and their interrupts belong to the driver (ethtool -C, the agent's raise_queues)"
)
_NEIGHBOUR = "not needed: the proxy's kernel has the neighbours and routes"
_MEMORY = "not needed: a process uses the memory of its queue, which the agent or the proxy limits"

COUNTERPARTS = (
    Counterpart("acceleration_control.app_id", "APPLICATION_ID", "application_id", ""),
    Counterpart(
        "acceleration_control.default_acceleration", "OFFLOADED_SOCKETS", "", "in a file of rules: `default os`"
    ),
    Counterpart("acceleration_control.rules", "", "rules", "put these lines into a file of rules"),
    Counterpart("", "CONFIG_FILE", "rules", "the file works as it is"),
    Counterpart("profiles.spec", "SPEC", "profile", ""),
    Counterpart("monitor.log.level", "TRACELEVEL", "log", ""),
    Counterpart("core.exception_handling.mode", "EXCEPTION_HANDLING", "strict", ""),
    Counterpart("monitor.exit_report", "PRINT_REPORT", "verbose", ""),
    Counterpart("performance.polling.iomux.poll_usec", "SELECT_POLL", "spin_us", ""),
    Counterpart("performance.polling.blocking_rx_poll_usec", "RX_POLL", "spin_us", "it counts polls, not time"),
    Counterpart("performance.rings.rx.allocation_logic", "RING_ALLOCATION_LOGIC_RX", "stacks", ""),
    Counterpart(
        "performance.rings.tx.allocation_logic", "RING_ALLOCATION_LOGIC_TX RING_ALLOCATION_LOGIC", "stacks", ""
    ),
    # --- set elsewhere, or by the program
    Counterpart("monitor.log.file_path", "LOG_FILE", "", "lines go to standard error, which can be redirected"),
    Counterpart(
        "monitor.log.details", "LOG_DETAILS", "", "no such setting: `xts status` shows figures by process and socket"
    ),
    Counterpart("monitor.log.colors", "LOG_COLORS", "", "not needed: lines have no colors"),
    Counterpart("monitor.stats.file_path", "STATS_FILE", "", "use connection_log in xts-proxy.toml"),
    Counterpart("monitor.stats.shmem_dir", "STATS_SHMEM_DIR", "", "not needed: `xts status` finds each process"),
    Counterpart("monitor.stats.fd_num", "STATS_FD_NUM", "", "not needed: every socket is counted"),
    Counterpart("monitor.stats.cpu_usage", "CPU_USAGE_STATS", "", _ALWAYS),
    Counterpart("", "SELECT_CQ_IRQ", "polling", ""),
    *(
        Counterpart(f"performance.completion_queue.interrupt_moderation.{path}", names, "wakeup_gap_us", "")
        for path, names in (
            ("adaptive_period_usec", "CQ_AIM_MAX_PERIOD_USEC"),
            ("period_usec", "CQ_MODERATION_PERIOD_USEC"),
        )
    ),
    Counterpart(
        "performance.completion_queue.interrupt_moderation.adaptive_interrupt_per_sec",
        "CQ_AIM_INTERRUPTS_RATE_PER_SEC",
        "",
        "set wakeup_gap_us to 1000000 divided by this number",
    ),
    Counterpart("network.protocols.tcp.wmem", "TCP_SEND_BUFFER_SIZE", "", _TCP),
    Counterpart("network.protocols.tcp.nodelay.enable", "TCP_NODELAY", "", _TCP),
    Counterpart("network.protocols.tcp.nodelay.byte_threshold", "TCP_NODELAY_TRESHOLD", "", _TCP),
    Counterpart("network.protocols.tcp.congestion_control", "TCP_CC_ALGO", "", _TCP),
    Counterpart("network.protocols.tcp.quickack", "TCP_QUICKACK", "", _TCP),
    Counterpart("network.protocols.tcp.mss", "MSS", "", _TCP),
    Counterpart(
        "network.protocols.tcp.linger_0", "TCP_ABORT_ON_CLOSE", "", "the program sets SO_LINGER, which is forwarded"
    ),
    Counterpart("network.protocols.tcp.push", "TCP_PUSH_FLAG", "", _DEVICE),
    Counterpart("network.protocols.tcp.timestamps", "TCP_TIMESTAMP_OPTION WINDOW_SCALING", "", _DEVICE),
    Counterpart("network.protocols.tcp.timer_msec", "TCP_TIMER_RESOLUTION_MSEC", "", _NO_THREAD),
    Counterpart("network.protocols.ip.mtu", "MTU", "", _DEVICE),
    Counterpart("network.timing.hw_ts_conversion", "HW_TS_CONVERSION", "", "the program sets SO_TIMESTAMPING"),
    Counterpart("network.multicast.mc_loopback", "TX_MC_LOOPBACK", "", "the program sets IP_MULTICAST_LOOP"),
    Counterpart("network.multicast.mc_flowtag_acceleration", "MC_FORCE_FLOWTAG", "", _HARDWARE),
    Counterpart("network.multicast.wait_after_join_msec", "WAIT_AFTER_JOIN_MSEC WAIT_AFTER_REREG_MSEC", "", _DEVICE),
    Counterpart("network.neighbor.arp.uc_delay_msec", "NEIGH_UC_ARP_DELAY_MSEC", "", _NEIGHBOUR),
    Counterpart("network.neighbor.arp.uc_retries", "NEIGH_UC_ARP_QUATA", "", _NEIGHBOUR),
    Counterpart("network.neighbor.errors_before_reset", "NEIGH_NUM_ERR_RETRIES", "", _NEIGHBOUR),
    Counterpart("network.neighbor.update_interval_msec", "NETLINK_TIMER", "", _NEIGHBOUR),
    Counterpart(
        "core.syscall.allow_privileged_sockopt",
        "ALLOW_PRIVILEGED_SOCK_OPT",
        "",
        "fixed: the proxy has a list of the options that it allows",
    ),
    Counterpart("hardware_features.tcp.tls_offload.tx_enable", "UTLS_TX", "", "[tls] in xts-proxy.toml"),
    Counterpart("hardware_features.tcp.tls_offload.rx_enable", "UTLS_RX", "", "[tls] in xts-proxy.toml"),
    Counterpart("performance.threading.worker_threads", "WORKER_THREADS", "", "workers in xts-proxy.toml"),
    Counterpart("performance.threading.cpu_affinity", "INTERNAL_THREAD_AFFINITY", "", "cpus in xts-proxy.toml"),
    Counterpart("performance.threading.cpuset", "INTERNAL_THREAD_CPUSET", "", "cpus in xts-proxy.toml"),
    Counterpart("performance.rings.max_per_interface", "RING_LIMIT_PER_INTERFACE", "", "use a number for `stacks`"),
    Counterpart("applications.nginx.workers_num", "NGINX_WORKERS_NUM", "", "not needed: workers share a listener"),
    # --- not needed
    Counterpart("applications.nginx.distribute_cq", "DISTRIBUTE_CQ", "", _HARDWARE),
    Counterpart(
        "applications.nginx.src_port_stride", "NGINX_SRC_PORT_STRIDE", "", "not needed: workers share a listener"
    ),
    Counterpart("applications.nginx.udp_pool_size", "NGINX_UDP_POOL_SIZE", "", _COMPUTED),
    Counterpart("applications.nginx.udp_socket_pool_reuse", "NGINX_UDP_POOL_RX_NUM_BUFFS_REUSE", "", _COMPUTED),
    Counterpart(
        "core.daemon.dir", "SERVICE_NOTIFY_DIR", "", "not needed: xts-agent sees a process end by its descriptors"
    ),
    Counterpart(
        "core.daemon.enable", "SERVICE_ENABLE", "", "not needed: xts-agent sees a process end by its descriptors"
    ),
    Counterpart("core.quick_init", "QUICK_START", "", "not needed: only settings and rules are checked at the start"),
    Counterpart("core.resources.external_memory_limit", "MEMORY_LIMIT_USER", "", _MEMORY),
    Counterpart("core.resources.heap_metadata_block_size", "HEAP_METADATA_BLOCK", "", _MEMORY),
    Counterpart("core.resources.hugepages.enable", "MEM_ALLOC_TYPE HUGETBL", "", _MEMORY),
    Counterpart("core.resources.hugepages.size", "HUGEPAGE_SIZE", "", _MEMORY),
    Counterpart("core.resources.memory_limit", "MEMORY_LIMIT", "", _MEMORY),
    Counterpart(
        "core.signals.sigint.exit", "HANDLE_SIGINTR", "", "not needed: the library installs no signal handlers"
    ),
    Counterpart(
        "core.signals.sigsegv.backtrace",
        "HANDLE_SIGSEGV",
        "",
        "no such setting: the library installs no signal handlers",
    ),
    Counterpart("core.syscall.avoid_ctl_syscalls", "AVOID_SYS_CALLS_ON_TCP_FD", "", _SYSCALL),
    Counterpart("core.syscall.deferred_close", "DEFERRED_CLOSE", "", _ALWAYS),
    Counterpart("core.syscall.dup2_close_fd", "CLOSE_ON_DUP2", "", _ALWAYS),
    Counterpart("core.syscall.fork_support", "FORK", "", _ALWAYS),
    Counterpart("core.syscall.sendfile_cache_limit", "ZC_CACHE_THRESHOLD", "", _MEMORY),
    Counterpart("hardware_features.striding_rq.enable", "STRQ", "", _HARDWARE),
    Counterpart("hardware_features.striding_rq.stride_size", "STRQ_STRIDE_SIZE_BYTES", "", _HARDWARE),
    Counterpart("hardware_features.striding_rq.strides_num", "STRQ_NUM_STRIDES", "", _HARDWARE),
    Counterpart("hardware_features.tcp.lro", "LRO", "", _DEVICE),
    Counterpart("hardware_features.tcp.tls_offload.dek_cache_max_size", "HIGH_WMARK_DEK_CACHE_SIZE", "", _DEVICE),
    Counterpart("hardware_features.tcp.tls_offload.dek_cache_min_size", "LOW_WMARK_DEK_CACHE_SIZE", "", _DEVICE),
    Counterpart("hardware_features.tcp.tso.enable", "TSO", "", _DEVICE),
    Counterpart("hardware_features.tcp.tso.max_size", "MAX_TSO_SIZE", "", _DEVICE),
    Counterpart("performance.buffers.batching_mode", "BUFFER_BATCHING_MODE", "", _COMPUTED),
    Counterpart("performance.buffers.rx.buf_size", "RX_BUF_SIZE RX_BUFS", "", _COMPUTED),
    Counterpart("performance.buffers.rx.prefetch_before_poll", "RX_PREFETCH_BYTES_BEFORE_POLL", "", _COMPUTED),
    Counterpart("performance.buffers.rx.prefetch_size", "RX_PREFETCH_BYTES", "", _COMPUTED),
    Counterpart("performance.buffers.tcp_segments.pool_batch_size", "TX_SEGS_POOL_BATCH_TCP", "", _COMPUTED),
    Counterpart("performance.buffers.tcp_segments.ring_batch_size", "TX_SEGS_RING_BATCH_TCP", "", _COMPUTED),
    Counterpart("performance.buffers.tcp_segments.socket_batch_size", "TX_SEGS_BATCH_TCP", "", _COMPUTED),
    Counterpart("performance.buffers.tx.buf_size", "TX_BUF_SIZE TX_BUFS", "", _COMPUTED),
    Counterpart("performance.buffers.tx.prefetch_size", "TX_PREFETCH_BYTES", "", _COMPUTED),
    *(
        Counterpart(f"performance.completion_queue.interrupt_moderation.{path}", names, "", _HARDWARE)
        for path, names in (
            ("adaptive_change_frequency_msec", "CQ_AIM_INTERVAL_MSEC"),
            ("adaptive_count", "CQ_AIM_MAX_COUNT"),
            ("enable", "CQ_MODERATION_ENABLE"),
            ("packet_count", "CQ_MODERATION_COUNT"),
        )
    ),
    Counterpart(
        "performance.completion_queue.keep_full",
        "CQ_KEEP_QP_FULL",
        "",
        "not needed: because of credits no frame is lost",
    ),
    Counterpart("performance.completion_queue.periodic_drain_max_cqes", "PROGRESS_ENGINE_WCE_MAX", "", _NO_THREAD),
    Counterpart("performance.completion_queue.periodic_drain_msec", "PROGRESS_ENGINE_INTERVAL", "", _NO_THREAD),
    Counterpart("performance.completion_queue.rx_drain_rate_nsec", "RX_CQ_DRAIN_RATE_NSEC", "", _COMPUTED),
    Counterpart("performance.max_gro_streams", "GRO_STREAMS_MAX", "", _DEVICE),
    Counterpart("performance.override_rcvbuf_limit", "RX_BYTES_MIN", "", "the program sets SO_RCVBUF"),
    Counterpart("performance.polling.iomux.poll_os_ratio", "SELECT_POLL_OS_RATIO SELECT_POLL_RATIO", "", _ALWAYS),
    Counterpart("performance.polling.iomux.skip_os", "SELECT_SKIP_OS", "", _ALWAYS),
    Counterpart("performance.polling.max_rx_poll_batch", "CQ_POLL_BATCH_MAX", "", _COMPUTED),
    Counterpart("performance.polling.nonblocking_eagain", "TX_NONBLOCKED_EAGAINS", "", _ALWAYS),
    Counterpart("performance.polling.offload_transition_poll_count", "RX_POLL_INIT", "", _COMPUTED),
    Counterpart("performance.polling.rx_cq_wait_ctrl", "RX_CQ_WAIT_CTRL", "", _ALWAYS),
    Counterpart(
        "performance.polling.rx_kernel_fd_attention_level", "RX_UDP_POLL_OS_RATIO RX_POLL_OS_RATIO", "", _ALWAYS
    ),
    Counterpart("performance.polling.rx_poll_on_tx_tcp", "RX_POLL_ON_TX_TCP", "", _ALWAYS),
    Counterpart("performance.polling.skip_cq_on_rx", "SKIP_POLL_IN_RX RX_SKIP_OS", "", _COMPUTED),
    Counterpart("performance.polling.yield_on_poll", "RX_POLL_YIELD SELECT_POLL_YIELD", "", _ALWAYS),
    Counterpart("performance.rings.rx.migration_ratio", "RING_MIGRATION_RATIO_RX RING_MIGRATION_RATIO", "", _COMPUTED),
    Counterpart("performance.rings.rx.post_batch_size", "RX_WRE_BATCHING", "", _COMPUTED),
    Counterpart("performance.rings.rx.ring_elements_count", "RX_WRE", "", "use frame_window of the agent or the proxy"),
    Counterpart("performance.rings.rx.spare_buffers", "QP_COMPENSATION_LEVEL", "", _COMPUTED),
    Counterpart("performance.rings.rx.spare_strides", "STRQ_STRIDES_COMPENSATION_LEVEL", "", _COMPUTED),
    Counterpart("performance.rings.tx.completion_batch_size", "TX_WRE_BATCHING", "", _COMPUTED),
    Counterpart("performance.rings.tx.max_inline_size", "TX_MAX_INLINE MAX_INLINE", "", _HARDWARE),
    Counterpart("performance.rings.tx.max_on_device_memory", "RING_DEV_MEM_TX", "", _HARDWARE),
    Counterpart("performance.rings.tx.migration_ratio", "RING_MIGRATION_RATIO_TX", "", _COMPUTED),
    Counterpart("performance.rings.tx.ring_elements_count", "TX_WRE", "", "frame_window of the agent or the proxy"),
    Counterpart("performance.rings.tx.tcp_buffer_batch", "TX_BUFS_BATCH_TCP", "", _COMPUTED),
    Counterpart("performance.rings.tx.udp_buffer_batch", "TX_BUFS_BATCH_UDP", "", _COMPUTED),
    Counterpart("performance.steering_rules.disable_flowtag", "DISABLE_FLOW_TAG", "", _HARDWARE),
    Counterpart("performance.steering_rules.tcp.2t_rules", "TCP_2T_RULES", "", _HARDWARE),
    Counterpart("performance.steering_rules.tcp.3t_rules", "TCP_3T_RULES", "", _HARDWARE),
    Counterpart("performance.steering_rules.udp.3t_rules", "UDP_3T_RULES", "", _HARDWARE),
    Counterpart("performance.steering_rules.udp.only_mc_l2_rules", "ETH_MC_L2_ONLY_RULES", "", _HARDWARE),
    Counterpart("performance.threading.internal_handler.behavior", "TCP_CTL_THREAD THREAD_MODE", "", _NO_THREAD),
    Counterpart(
        "performance.threading.internal_handler.timer_msec",
        "TIMER_RESOLUTION_MSEC INTERNAL_THREAD_ARM_CQ INTERNAL_THREAD_TCP_TIMER_HANDLING",
        "",
        _NO_THREAD,
    ),
    Counterpart("performance.threading.mutex_over_spinlock", "MULTILOCK", "", _NO_THREAD),
    Counterpart("", "IPOIB SUPPRESS_IGMP_WARNING BF QP_LOGIC", "", _HARDWARE),
    Counterpart("", "USE_NEW_CONFIG", "", "not needed: there is one kind of configuration"),
)

BY_PATH = {one.path: one for one in COUNTERPARTS if one.path}
BY_NAME = {name: one for one in COUNTERPARTS for name in one.names.split()}
