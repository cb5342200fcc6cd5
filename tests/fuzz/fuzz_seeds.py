"""Where corpora of the fuzz targets begin: programs written by hand, golden vectors, what was saved of earlier runs.

A saved corpus is a text file, `corpora/TARGET.txt`, an input a line in hexadecimal: small, and its changes can be read.
`tests/fuzz/run --save` writes it.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from fuzz_seeds_datagram import datagram_payloads, host_programs, name_exchanges
from fuzz_seeds_datagram_side import datagram_side_programs
from fuzz_seeds_record import record_programs
from fuzz_seeds_socket_record import socket_record_programs
from fuzz_seeds_ulp import stack_programs
from xts_messages.settings import environment

TOP = Path(__file__).resolve().parents[2]
CORPORA = Path(__file__).resolve().parent / "corpora"
#: Of a saved corpus: the inputs are those that reach most, the shortest first.
SAVED_BYTES_MAX = 48 * 1024


def saved(target: str) -> list[bytes]:
    """What was saved of earlier runs."""
    path = CORPORA / f"{target}.txt"
    return [bytes.fromhex(line) for line in path.read_text().split()] if path.exists() else []


def save(target: str, inputs: list[bytes]) -> int:
    """Saves as many of the inputs as there is room for, the shortest first; how many."""
    kept: list[bytes] = []
    room = SAVED_BYTES_MAX
    for data in sorted(inputs, key=lambda data: (len(data), data)):
        room -= len(data)
        if room < 0:
            break
        if data:
            kept.append(data)
    CORPORA.mkdir(exist_ok=True)
    (CORPORA / f"{target}.txt").write_text("".join(f"{data.hex()}\n" for data in kept))
    return len(kept)


def seed(corpus: Path, target: str) -> None:
    """Writes the corpus's beginning: the target's own programs, or golden vectors (as programs of the link)."""
    corpus.mkdir(parents=True, exist_ok=True)
    for data in saved(target):
        (corpus / hashlib.sha1(data).hexdigest()).write_bytes(data)
    own = {
        "fuzz_stack": stack_programs,
        "fuzz_layers": layer_programs,
        "fuzz_tls": tls_programs,
        "fuzz_tls_keys": keys_programs,
        "fuzz_rules": rule_files,
        "fuzz_settings": settings_files,
        "fuzz_worker": worker_programs,
        "fuzz_datagram": datagram_payloads,
        "fuzz_record": record_programs,
        "fuzz_datagram_side": datagram_side_programs,
        "fuzz_socket_record": socket_record_programs,
        "fuzz_names": name_exchanges,
        "fuzz_host": host_programs,
    }
    for number, program in enumerate(own[target]() if target in own else []):
        (corpus / f"program-{number}").write_bytes(program)
    if target in own and target not in ("fuzz_worker", "fuzz_host"):
        return
    for path in sorted((TOP / "messages" / "vectors").glob("*.json")):
        for number, vector in enumerate(json.loads(path.read_text())["vectors"]):
            frame = bytes.fromhex(vector["frame"])
            if target == "fuzz_link":
                frame = link_program(frame)
            (corpus / f"{path.stem}-{number}").write_bytes(frame)


def settings_files() -> list[bytes]:
    """Each setting with a value of each form, good ones among them; and mistakes of every kind."""
    values = ["true", "7", "1_000", "'/a'", '"shm:/a"', "''", "01", "99999999999", "1__0", "'x' y", r'"\n"', '"""']
    files = []
    for setting in (variable for variable in environment.VARIABLES if variable.key):
        good = [str(setting.minimum), str(setting.maximum), *(f"'{choice}'" for choice in setting.choices)]
        files += [f"{setting.key} = {value} # {setting.key}\r\n".encode() for value in (*values, *good)]
        files.append(f"{setting.key} = 1\n{setting.key.upper()} = 2\n{setting.key}x\n{setting.key} = 1\n".encode())
    texts = (b"\xc3", b"\xc3\xa9", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x7f")
    return [
        *files,
        *(f"{variable.name.removeprefix('XTS_').lower()} = 1\n".encode() for variable in environment.OURS),
        b'# settings\nspin_us = 1_000\nstrict = true\nlog = \'debug\'\nrules = "/a\\"b"\nstacks = 4\r\n',
        b'[a]\nspin = 5\nspin_us = -1\nrules = "x\nquiet = 0\n',
        b"\xef\xbb\xbfstrict = true\n",
        *(b"# " + text for text in texts),
        b"rules = '/" + b"a" * 4085,
    ]


def layer_programs() -> list[bytes]:
    """Each protocol, each of its flags; PDUs both ways, and reads."""
    rounds = [bytes([0, number, 90, 255, 4, 255, 1, 7, 200, 80, 5, 255, 6, 7]) * 12 for number in range(5 * 16)]
    return [bytes([number * 3]) + program for number, program in enumerate(rounds)]


def rule_files() -> list[bytes]:
    """The examples of the manual."""
    manual = (TOP / "host_lib" / "RULES.md").read_text()
    return [block.encode() for block in re.findall(r"^```\w*\n(.*?)^```$", manual, re.MULTILINE | re.DOTALL)]


def link_program(frame: bytes) -> bytes:
    """The frame put in at each end of an open link (see step() and inject() of fuzz_link.c)."""
    start_host, start_proxy = bytes([12, 1, 3, 9, 10, 100, 0]), bytes([12, 1, 3, 10, 100])
    inject = bytes([0b0110, len(frame)]) + frame[14:] if 14 <= len(frame) <= 128 else b"\0\0"
    return (
        start_host + start_proxy + b"\1" + bytes([3, 0]) + inject + bytes([0x80]) + inject + bytes([8, 0x88, 3, 0x83])
    )


def worker_programs() -> list[bytes]:
    """What takes too many steps to be found by chance: shared listeners and parked connections (op_hand_over() of
    fuzz_worker.c)."""
    connect, bind, listen, share, credit, answer, park, claim = (bytes([(24 + n) * 8 + 7]) for n in range(8))
    hosts = [bytes([n * 8 + 7]) for n in (12, 13, 14)]
    end, expire, drain, restart = (bytes([n * 8 + 7]) for n in (7, 9, 10, 11))
    burst, peer_reads, peer_resets = bytes([20 * 8 + 7]), bytes([2, 32]) * 8, bytes([2, 48])
    rounds, receive, last, none = b"\x0c", b"\x0b", bytes([0]), bytes([230])
    key, back = b"\x11", b"\1"
    newcomers = b"".join(bytes([2, 16 + n]) + rounds for n in range(3)) + receive
    listener = bind + b"\0" + last + listen + b"\4" + last + share + key + last
    member = b"".join(host + share + key + none + credit + b"\4" + last for host in hosts[1:])
    offers = b"".join(host + receive for host in hosts)
    give_back = b"".join(host + answer + back + bytes([n]) for host in hosts for n in range(1, 5))
    accept = b"".join(host + answer + b"\0" + bytes([n]) for host in hosts for n in range(1, 5))
    connection = connect + b"\0" + none + rounds + receive + bytes([2, 0]) + park + key + last
    spilled = (
        connect + b"\0" + none + rounds + bytes([2, 0]) + (burst + last + b"\x3f") * 12 + park + key + last + rounds
    )
    # Pushed protocols (op_ulp()): the identifier, then what each reads.
    push, pdu, returned, peek_on, peek_end, timers = (bytes([n * 8 + 7]) for n in range(6))
    reach, accepted = rounds * 2 + receive, bytes([2, 0])
    connection_up = connect + b"\0" + none + reach + accepted
    pushed = push + none + b"\2\0\4" + connect + b"\x20" + last + reach + accepted
    peeking = peek_on + none + b"\1" + connect + b"\x20" + last + reach + accepted
    peer_sends, peer_sends_zeros, peer_ends = bytes([2, 24, 5, 60]), bytes([2, 24, 0, 60]), bytes([2, 40])
    pushed_listener = bind + b"\0" + last + push + last + b"\2\0\4" + listen + b"\4" + last
    tls_listener = bind + b"\0" + last + push + last + b"\x82\0\5" + listen + b"\4" + last
    late_push = push + last + b"\x42\1\x20\4" + returned + last + b"\x64"
    send_pdu = pdu + last + b"\0" + b"\x20"
    # Datagram sockets (op_datagram()): what it does, the identifier unless it opens one, then what each reads.
    datagram = bytes([15 * 8 + 7])
    opened, opened_bound = datagram + b"\x20", datagram + b"\x10"
    few = datagram + b"\x46" + last + b"\0" + b"\4" + b"\x09\x20" * 4 + last
    train = datagram + b"\x46" + last + b"\0" + b"\2" + b"\x0d\x80\x20" * 2 + last
    long = datagram + b"\x46" + last + b"\0" + b"\x10" + b"\x02\6" * 16 + last
    marked = datagram + b"\x46" + last + b"\0" + b"\2" + b"\x19\x0e\x30" * 2 + last
    answers = datagram + b"\4" + last + b"\x64\x27" + rounds + receive
    more_credits, close = datagram + b"\3" + last + b"\6", datagram + b"\2" + last
    dissolve, reconnect = datagram + b"\1" + last, datagram + b"\x81" + last
    # A connection that several have (op_take()): it has a key, is asked for, parked, returned and taken.
    take, yields, ends_there = bytes([17 * 8 + 7]), b"\x30", bytes([17 * 8 + 7]) + b"\2\0"
    named = connect + b"\0" + none + rounds + receive + bytes([2, 0]) + share + b"\x10" + last
    asks, parks = hosts[1] + take + yields + receive, hosts[0] + receive + park + b"\x10" + last
    pieces = take + b"\2\1\x60" + take + b"\2\x12\x60" + ends_there
    nobody_has = take + b"\xfd\1\4"  # say_over(): of this host's first epoch, all keys
    # Names (op_name()): a question; answers, cut off, with a mistake, of another number.
    name = bytes([18 * 8 + 7])
    asked, wrong = name + b"\0\1\5", name + b"\0\1\xf5"
    found, cut_off, unknown, forged = (name + b"\1" + bytes([how]) for how in (0, 1, 0x32, 4))
    joined_datagram = hosts[1] + share + key + none + rounds + receive + few + more_credits
    filtered = datagram + b"\5" + last + b"\x40"  # of four instructions
    by_name, unfiltered = datagram + b"\5" + last + b"\x12a", datagram + b"\5" + last + b"\3"
    stamped = datagram + b"\5" + last + b"\x81\x20"
    datagram_share = opened_bound + filtered + share + key + last
    shared = listener + member + newcomers + offers + give_back + rounds + offers
    return [
        shared + accept,
        shared + hosts[0] + end + b"\1" + rounds + offers + accept,
        shared + hosts[1] + restart + rounds + offers + accept,
        shared + drain + rounds + give_back,
        listener + newcomers + end + b"\1" + rounds + hosts[1] + share + key + none + credit + b"\4" + last + receive,
        listener + end + b"\1" + rounds + expire + rounds,
        named + nobody_has + rounds + end + b"\1" + rounds + hosts[1] + take + yields + rounds,
        named + hosts[0] + park + b"\x10" + last + rounds + hosts[1] + nobody_has + rounds + hosts[0] + rounds,
        listener + end + b"\1" + rounds + hosts[1] + bind + b"\1" + none + rounds,
        connection + hosts[1] + claim + key + none + rounds + receive,
        connection + claim + key + none + rounds + receive + park + key + last + expire,
        connection + restart + hosts[1] + claim + key + none,
        spilled + hosts[2] + claim + key + none + rounds,
        pushed + send_pdu * 8 + peer_sends + rounds + receive + expire,
        pushed + send_pdu * 8 + peer_sends_zeros + peer_ends + rounds + receive + rounds + receive,
        pushed_listener + newcomers + accept + peer_sends_zeros + rounds + receive,
        pushed_listener + share + key + last + member + newcomers + offers + give_back + rounds + offers + accept,
        tls_listener + newcomers + rounds + timers + last + rounds,
        tls_listener + share + key + last + member + newcomers + rounds + end + b"\1" + rounds,
        connection_up + peer_sends + rounds + receive + late_push + rounds + receive,
        peeking + peer_sends + reach + push + last + b"\2\0\4" + peek_end + last + b"\4" + rounds + send_pdu + rounds,
        pushed + (send_pdu * 20 + rounds) * 8 + restart,
        push + none + b"\x82\0\5" + connect + b"\x20" + last + reach + timers + last + reach,
        opened + few + answers * 3 + more_credits + rounds + receive + close + receive,
        opened + filtered + stamped + few + answers + by_name + unfiltered + answers + close + receive,
        datagram_share + member + filtered + hosts[0] + close + receive + hosts[1] + unfiltered + close + receive,
        datagram_share + member + close + hosts[0] + close + hosts[2] + end + b"\1" + rounds + expire + rounds,
        opened + (long + rounds) * 4 + answers + dissolve + few + rounds + receive + close,
        opened_bound + train + marked + answers + reconnect + long + hosts[1] + opened + few + answers + restart,
        opened + long + end + b"\1" + rounds + receive,
        opened_bound + share + key + last + few + joined_datagram + answers * 3 + hosts[0] + receive + close + receive,
        opened + share + key + last + joined_datagram + end + b"\1" + rounds + hosts[0] + answers + few + restart,
        asked * 3
        + found
        + rounds
        + receive
        + wrong
        + asked
        + unknown
        + rounds
        + asked
        + forged * 20
        + rounds
        + receive,
        (asked + cut_off + rounds + bytes([2, 0, 2, 24, 5, 60]) + rounds + timers + last) * 3 + end + b"\1" + rounds,
        named + peer_sends + rounds + asks + parks + pieces + asks + rounds + receive + hosts[1] + end + b"\1" + rounds,
        named + asks + hosts[0] + receive + share + b"\x10" + last + asks + parks + asks + restart + asks + expire,
        named + parks + take + b"\2\1\x60" + expire + rounds + hosts[1] + claim + b"\x10" + none + rounds,
        connection_up + push + last + b"\x82\0\5" + rounds + send_pdu + rounds + end + b"\1" + rounds,
        spilled + peer_reads + rounds + expire,
        spilled + peer_resets + rounds + hosts[1] + claim + key + none + rounds,
    ]


def tls_programs() -> list[bytes]:
    """Handshakes of each kind, and what is reached behind them alone (the operations of fuzz_tls.c)."""
    rounds, dribble, read, ours, theirs = b"\0\5", b"\2" + b"\4\7\5\x20" * 12, b"\5\xff", b"\6\xff", b"\x08\xff\x08\5"
    again, leave, finish, peer_works = b"\x0f", b"\x0d\0", b"\7\0", b"\2"
    meddle = b"\x0a"
    late = [
        theirs + b"\4\x7f" + read * 3,
        ours * 4 + peer_works + ours,
        *(b"\x09" + bytes([control]) + theirs + rounds for control in (0, 8, 1, 2, 3, 4)),
        *(theirs + meddle + bytes([way, 0, 9, 40]) + bytes(range(40)) + rounds for way in range(5)),
        *(b"\x0c" + bytes([kind, len(data)]) + data + rounds for kind, data in FORGERIES),
        *(b"\x09" + bytes([control]) * 2 + rounds * 2 for control in (0, 3)),
        *((b"\x09" + bytes([control])) * 40 + rounds * 3 for control in (0, 3)),
        *((b"\x0c" + bytes([kind, len(data)]) + data) * 40 + rounds * 3 for kind, data in FORGERIES[:4:3]),
        finish + rounds + leave + rounds,
        leave + rounds,
        again + rounds + again + theirs + rounds,
    ]
    programs = []
    for how in range(64):
        start = bytes([how + (how & 8) * 8, (0, 1, 2, 33, 67, 96, 4, 8, 16, 128)[how % 10]])
        programs.append(start + dribble + rounds + theirs + ours + rounds)
        programs += [start + rounds + attack for attack in (late if how < 8 else ())]
        for flight in range(1, 4):
            step = peer_works + b"\4\xff\5\1"
            programs.append(start + step * flight + peer_works + meddle + bytes([how % 5, 0, 9 * flight, how]) + rounds)
    return programs


def keys_programs() -> list[bytes]:
    """Records of each version and cipher, keys that change, and what goes wrong (the operations of fuzz_tls_keys.c)."""
    send, control, update, keys = b"\0\xff\0\5", b"\2\x20\x42\x7f", b"\3", b"\4"
    arrive, drip, meddle, forge, end = b"\5\xff\7\xff" * 4, b"\5\3\7\1" * 10, b"\x09", b"\x0a", b"\x0b\0"
    traffic = send + control + arrive + update + keys + send + arrive + keys + arrive
    programs = []
    for how in range(16):
        start = bytes([how])
        programs += [start + traffic, start + send + drip + traffic, start + send + arrive + send + end + arrive]
        programs += [start + send + meddle + bytes([way, 0, 9, 40]) + bytes(range(40)) + arrive for way in range(5)]
        programs += [start + forge + bytes([20 + kind, kind % 3, 99]) + b"ab" + arrive for kind in range(6)]
    return programs


#: Kind (see peer_forges() of fuzz_tls.c) and content of records: handshake messages, alerts, nothing, others.
FORGERIES = (
    (0, bytes.fromhex("1800000101")),
    (0, bytes.fromhex("1800000102")),
    (0, bytes.fromhex("18000001")),
    (0, bytes.fromhex("00000000")),
    (0, bytes.fromhex("0400ffff") + bytes(32)),
    (0, bytes.fromhex("040000180000000a000000000000040000") + bytes(11)),
    (0, bytes.fromhex("0d00000600000000000000")),
    (0, bytes.fromhex("08000002") + bytes(2)),
    (0, bytes.fromhex("0b00000400000000")),
    (0, bytes.fromhex("14000020") + bytes(32)),
    (1, bytes.fromhex("0100")),
    (1, bytes.fromhex("0228")),
    (1, bytes.fromhex("0170")),
    (1, b"\1"),
    (2, b""),
    (2, b"data"),
    (3, b"\1"),
)
