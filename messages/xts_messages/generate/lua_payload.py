"""The part of the dissector (generate_lua.py) that knows sockets. Each has a number, `xts.stream`, for both directions;
its payload goes to the dissector of its ports, as for a TCP connection."""

PAYLOAD = r"""
-- --- sockets, and what they carry -----------------------------------------------------------------------------------

xts.prefs.payload = Pref.bool("Dissect payload", true, "Hand payload to the dissector of the socket's ports")

local PT_TCP, PT_UDP, UNTIL_THE_END = 2, 3, 0x0ffffffe
-- Of a train; more than the kernel makes (UDP_MAX_SEGMENTS).
local SEGMENTS_MAX = 128
-- A dissector that wants more than this at once has been misled.
local CONTINUED_BYTES_MAX = 1048576
local interface_of = Field.new("frame.interface_id")
local tcp_ports, udp_ports = DissectorTable.get("tcp.port"), DissectorTable.get("udp.port")
local channels, seen, streams = {}, {}, 0

function xts.init()
	channels, seen, streams = {}, {}, 0
end

-- Identifiers are of a channel: of two addresses on one interface, until the next HELLO.
local function channel_of(packet)
	local interface, a, b = interface_of(), tostring(packet.dl_src), tostring(packet.dl_dst)
	if a > b then a, b = b, a end
	local key = tostring(interface and interface.value or 0) .. " " .. a .. " " .. b
	channels[key] = channels[key] or { host = {}, proxy = {} }
	return channels[key]
end

-- The socket that a message is about; a new one where the message makes one, or the capture begins later.
local function socket_of(channel, message, id, values)
	if message.short == "HELLO" then channel.host, channel.proxy = {}, {} end
	if not message.sender or message.short == "QUERY_NAME" or message.short == "NAME_ACK" then return nil end
	local host_id, proxy_id = id, values.proxy_id
	if message.sender == "host" then host_id, proxy_id = values.xts_socket, id end
	if message.short == "NEWCONN" then host_id = nil end -- the listener's
	if host_id == 0 then host_id = nil end
	if proxy_id == 0 then proxy_id = nil end
	if not host_id and not proxy_id then return nil end
	local socket = (proxy_id and channel.proxy[proxy_id]) or (host_id and channel.host[host_id])
	if not socket then
		socket = { stream = streams, rest = {} }
		streams = streams + 1
	end
	if host_id then channel.host[host_id] = socket end
	if proxy_id then channel.proxy[proxy_id] = socket end
	for _, name in ipairs({ "local", "peer" }) do
		local endpoint = values[name]
		if endpoint and endpoint.address then socket[name] = endpoint end
	end
	return socket
end

-- By the ports, the smaller first, which is most likely the server's, as the dissectors of TCP and UDP do.
local function by_ports(ports, a, b)
	return ports:get_dissector(math.min(a.port, b.port)) or ports:get_dissector(math.max(a.port, b.port))
end

-- What TLS is pushed onto is not encrypted here.
local function dissector_for(socket, bytes)
	local found = by_ports(tcp_ports, socket.peer, socket["local"])
	if not found then return nil end
	local encrypted = bytes:len() < 2 or (math.floor(bytes:get_index(0) / 4) == 5 and bytes:get_index(1) == 3)
	local is_tls = string.lower(tostring(found)) == "tls"
	return is_tls and not encrypted and Dissector.get("http") or found
end

local function set_addresses(packet, own, other, from_host, port_type)
	local source, target = own, other
	if not from_host then source, target = target, source end
	packet.src, packet.dst = source.address, target.address
	packet.src_port, packet.dst_port = source.port, target.port
	pcall(function() packet.port_type = port_type end) -- Wireshark 4.0 does not have it
end

-- What a dissector wants to see again, with what comes next; nil: nothing.
local function left_over(packet, bytes)
	local at = packet.desegment_offset
	if packet.desegment_len == 0 or at >= bytes:len() or bytes:len() - at > CONTINUED_BYTES_MAX then return nil end
	return bytes:subset(at, bytes:len() - at)
end

local function hand_on(note, range, packet, root)
	local socket, bytes, whole = note.socket, range:bytes(), range:tvb()
	if note.before then
		bytes = note.before .. bytes
		whole = bytes:tvb("XTS stream")
	end
	local dissector = dissector_for(socket, bytes)
	if not dissector then return end
	set_addresses(packet, socket["local"], socket.peer, note.from_host, PT_TCP)
	packet.can_desegment, packet.desegment_len, packet.desegment_offset = 2, 0, 0
	dissector:call(whole, packet, root)
	if packet.desegment_len == UNTIL_THE_END then
		packet.can_desegment, packet.desegment_len, packet.desegment_offset = 0, 0, 0
		dissector:call(whole, packet, root)
	end
	if not packet.visited then socket.rest[note.from_host] = left_over(packet, bytes) end
	packet.can_desegment, packet.desegment_len, packet.desegment_offset = 0, 0, 0
end

local function endpoint_at(range)
	local version, port = range(ENDPOINT_IP_VERSION, 1):uint(), range(ENDPOINT_PORT, 2):uint()
	if version == 4 then return { port = port, address = range(ENDPOINT_ADDRESS, 4):ipv4() } end
	if version == 6 then return { port = port, address = range(ENDPOINT_ADDRESS, 16):ipv6() } end
	return nil
end

-- A datagram, or a train of datagrams of one length.
local function hand_on_train(note, data, segment, other, packet, root)
	local own = note.socket["local"]
	local dissector = own and other and by_ports(udp_ports, own, other)
	if not dissector then return end
	if segment == 0 then segment = data:len() end
	set_addresses(packet, own, other, note.from_host, PT_UDP)
	for i = 0, SEGMENTS_MAX - 1 do
		local at = i * segment
		if at >= data:len() then break end
		dissector:call(data(at, math.min(segment, data:len() - at)):tvb(), packet, root)
	end
end

-- Each has a record in front. What the last one lacks comes with the next message, if there is `more`.
local function hand_on_datagrams(note, range, more, packet, root)
	local whole, at = range:tvb(), 0
	if note.before then whole = (note.before .. range:bytes()):tvb("XTS datagrams") end
	while at + RECORD.bytes <= whole:len() do
		local bytes = whole(at + RECORD.data_bytes, 2):uint()
		local first = at + RECORD.bytes + whole(at + RECORD.control_bytes, 2):uint()
		if first + bytes > whole:len() then break end
		local other = endpoint_at(whole(at + RECORD.endpoint, RECORD.endpoint_bytes)) or note.socket.peer
		if bytes > 0 then
			hand_on_train(note, whole(first, bytes), whole(at + RECORD.segment_bytes, 2):uint(), other, packet, root)
		end
		at = first + bytes
	end
	if packet.visited then return end
	local left = whole:len() - at
	local goes_on = more and left > 0 and left <= CONTINUED_BYTES_MAX
	note.socket.rest[note.from_host] = goes_on and whole(at, left):bytes() or nil
end

-- Notes what the messages of a packet say of sockets when the packet is first seen; later the notes are used.
local function note_message(packet, message, id, values)
	local notes = seen[packet.number]
	if not packet.visited then
		local socket = socket_of(channel_of(packet), message, id, values)
		local from_host = message.sender == "host"
		notes = notes or { at = 0 }
		seen[packet.number] = notes
		notes[#notes + 1] = { socket = socket, from_host = from_host, before = socket and socket.rest[from_host] }
		return notes[#notes]
	end
	if not notes then return {} end
	notes.at = notes.at % #notes + 1
	return notes[notes.at]
end

local STREAMS = { SEND = true, RECV = true, SEND_PDU = true, RECV_PDU = true }
local DATAGRAMS = { SEND_DATAGRAMS = true, RECV_DATAGRAMS = true }

-- After the messages themselves: the dissectors of payload write to the columns.
local function carry_on(carried, packet, root)
	if not xts.prefs.payload then return end
	for _, one in ipairs(carried) do
		local socket = one.note.socket
		if socket and one.datagrams then
			hand_on_datagrams(one.note, one.range, one.more, packet, root)
		elseif socket and socket["local"] and socket.peer then
			hand_on(one.note, one.range, packet, root)
		end
	end
end
"""
