"""The part of the dissector (generate_lua.py) that does not depend on the messages: it walks their tables."""

#: The protocol, its preferences and its fields.
OPENING = r"""
local xts = Proto("xts", "XDP-Transport")

xts.prefs.ethertype = Pref.uint("EtherType", ETHERTYPE, "EtherType of XDP-Transport frames")

local function malformed(name, text)
	return ProtoExpert.new("xts.malformed." .. name, text, expert.group.MALFORMED, expert.severity.ERROR)
end

local too_short = malformed("short", "Frame shorter than its message")
local unknown = malformed("type", "Unknown message type")
local illegal = malformed("value", "Illegal value")
local length_wrong = malformed("length", "Length does not agree with the frame")
local odd_flag = ProtoExpert.new("xts.odd_flag", "Flag without a meaning in this message", expert.group.PROTOCOL,
	expert.severity.WARN)
local failed = ProtoExpert.new("xts.failed", "Carries an error", expert.group.RESPONSE_CODE, expert.severity.NOTE)
xts.experts = { too_short, unknown, illegal, length_wrong, odd_flag, failed }

local all = {}
for _, set in ipairs({ common, flag_fields, fields }) do
	for _, f in pairs(set) do all[#all + 1] = f end
end
for _, set in pairs(endpoints) do
	for _, f in pairs(set) do all[#all + 1] = f end
end
xts.fields = all
"""

#: Decodes a frame into its fields, and registers the dissector.
WALK = r"""
-- Is the value outside what the table allows? 64-bit values have no limits.
local function breaks(spec, value)
	if spec.limit and value > spec.limit then return true end
	if not spec.legal then return false end
	for _, v in ipairs(spec.legal) do
		if v == value then return false end
	end
	return true
end

local function number(range, spec)
	if spec.signed then return range:int() end
	return range:len() < 8 and range:uint() or nil
end

-- Returns the endpoint as text, and its port and address.
local function dissect_endpoint(tree, range, spec)
	local address
	local f = endpoints[spec.endpoint]
	local version, port = range(ENDPOINT_IP_VERSION, 1):uint(), range(ENDPOINT_PORT, 2):uint()
	local branch = tree:add(f.whole, range)
	local text = "none"

	branch:add(f.port, range(ENDPOINT_PORT, 2))
	local version_item = branch:add(f.ip_version, range(ENDPOINT_IP_VERSION, 1))
	branch:add(f.reserved, range(ENDPOINT_RESERVED, 1))
	branch:add(f.scope_id, range(ENDPOINT_SCOPE_ID, 4))
	if version == 4 then
		branch:add(f.address4, range(ENDPOINT_ADDRESS, 4))
		address = range(ENDPOINT_ADDRESS, 4):ipv4()
		text = tostring(address) .. ":" .. port
	elseif version == 6 then
		branch:add(f.address6, range(ENDPOINT_ADDRESS, 16))
		address = range(ENDPOINT_ADDRESS, 16):ipv6()
		text = "[" .. tostring(address) .. "]:" .. port
	else
		branch:add(f.address, range(ENDPOINT_ADDRESS, 16))
	end
	branch:append_text(": " .. text)
	if breaks({ legal = ENDPOINT_IP_VERSIONS }, version) then
		version_item:add_proto_expert_info(illegal)
	end
	return text, { port = port, address = address }
end

local function dissect_flags(tree, range, message)
	local value = range:uint()
	local branch = tree:add(common.flags, range)
	local names, odd = {}, false

	for _, flag in ipairs(flags) do
		branch:add(flag_fields[flag.name], range)
		if math.floor(value / flag.bit) % 2 == 1 then
			names[#names + 1] = flag.name
			if message and not message.flags[flag.name] then odd = true end
		end
	end
	branch:append_text(#names > 0 and " (" .. table.concat(names, ", ") .. ")" or " (none)")
	if odd then branch:add_proto_expert_info(odd_flag) end
	return table.concat(names, ",")
end

-- The payload, and Ethernet's padding after it.
local function dissect_payload(tree, buffer, message, length, length_item)
	local rest = buffer:len() - message.bytes

	if length > rest or (length < rest and buffer:len() > ETH_MIN_BYTES) then
		length_item:add_proto_expert_info(length_wrong)
	end
	length = math.min(length, rest)
	if length < rest then tree:add(common.trailer, buffer(message.bytes + length)) end
	if length <= 0 then return nil end
	tree:add(common.payload, buffer(message.bytes, length))
	return buffer(message.bytes, length)
end

-- Returns the values by name, and the payload.
local function dissect_fields(tree, buffer, message, info)
	local values = {}
	local length, length_item

	for _, spec in ipairs(message.fields) do
		local range = buffer(spec.offset, spec.bytes)
		if spec.endpoint then
			local text, endpoint = dissect_endpoint(tree, range, spec)
			values[spec.endpoint] = endpoint
			info[#info + 1] = spec.endpoint .. "=" .. text
		else
			local value = number(range, spec)
			values[spec.name] = value
			local item = tree:add(fields[spec.field], range)
			if value and breaks(spec, value) then item:add_proto_expert_info(illegal) end
			if spec.name == message.payload then length, length_item = value, item end
			if value and spec.shown then info[#info + 1] = spec.name .. "=" .. value end
		end
	end
	if length then
		return values, dissect_payload(tree, buffer, message, length, length_item)
	elseif buffer:len() > message.bytes then
		tree:add(common.trailer, buffer(message.bytes))
	end
	return values
end

-- Wireshark hands over what follows the Ethernet header; the table's offsets count from the header's start.
local function from_ethernet(after_ethernet)
	return setmetatable({ len = function() return after_ethernet:len() + ETH_BYTES end },
		{ __call = function(_, offset, bytes) return after_ethernet(offset - ETH_BYTES, bytes) end })
end

-- One frame; returns what the info column says of it. What goes to other dissectors is added to `carried`.
local function dissect_frame(after_ethernet, packet, root, carried)
	local tree = root:add(xts, after_ethernet())
	if after_ethernet:len() < HEAD_BYTES - ETH_BYTES then
		tree:add_proto_expert_info(too_short)
		return "[short frame]"
	end
	local buffer = from_ethernet(after_ethernet)
	local code = buffer(HEAD_TYPE, 1):uint()
	local message = messages[code]
	local error_number = buffer(HEAD_ERROR, 2):uint()

	local type_item = tree:add(common.type, buffer(HEAD_TYPE, 1))
	tree:add(common.seqno, buffer(HEAD_SEQNO, 1))
	tree:add(common.frame_ack, buffer(HEAD_FRAME_ACK, 1))
	local flag_names, refusal = "", 0
	if message and message.refusal then
		refusal = buffer(HEAD_FLAGS, 1):uint()
		tree:add(common.refusal, buffer(HEAD_FLAGS, 1))
	else
		flag_names = dissect_flags(tree, buffer(HEAD_FLAGS, 1), message)
	end
	local error_item = tree:add(common.error, buffer(HEAD_ERROR, 2))
	local id_item = tree:add(common.id, buffer(HEAD_ID, 4))
	if error_number ~= 0 then error_item:add_proto_expert_info(failed) end
	if not message then
		type_item:add_proto_expert_info(unknown)
		return "[unknown type " .. code .. "]"
	end
	id_item:append_text(" (" .. message.id_of .. ")")
	type_item:append_text(": " .. message.meaning)

	local info = { message.short, "seq=" .. buffer(HEAD_SEQNO, 1):uint(), "ack=" .. buffer(HEAD_FRAME_ACK, 1):uint() }
	if message.id_of ~= "unused" then info[#info + 1] = string.format("id=0x%x", buffer(HEAD_ID, 4):uint()) end
	if flag_names ~= "" then info[#info + 1] = "[" .. flag_names .. "]" end
	if error_number ~= 0 then info[#info + 1] = errno_names[error_number] or ("errno " .. error_number) end
	if refusal ~= 0 then info[#info + 1] = refusal_names[refusal] or ("refusal " .. refusal) end
	if buffer:len() < message.bytes then
		info[#info + 1] = "[short frame]"
		type_item:add_proto_expert_info(too_short)
	else
		local values, payload = dissect_fields(tree, buffer, message, info)
		local note = note_message(packet, message, buffer(HEAD_ID, 4):uint(), values)
		if note.socket then tree:add(common.stream, note.socket.stream):set_generated() end
		local datagrams = DATAGRAMS[message.short]
		if payload and (datagrams or STREAMS[message.short]) then
			local more = flag_names:find("MORE", 1, true) ~= nil
			carried[#carried + 1] = { note = note, range = payload, datagrams = datagrams, more = more }
		end
	end
	return table.concat(info, " "), message.short
end

-- Each frame of a bundle has its length in front.
local function dissect_bundled(after_ethernet, packet, root, info, carried)
	local at = BUNDLE_BYTES - ETH_BYTES
	while at + 2 <= after_ethernet:len() do
		local bytes = after_ethernet(at, 2):uint()
		if bytes < HEAD_BYTES or bytes > after_ethernet:len() - at - 2 then return end
		local frame = after_ethernet(at + 2 + ETH_BYTES, bytes - ETH_BYTES):tvb()
		info[#info + 1] = dissect_frame(frame, packet, root, carried)
		at = at + 2 + bytes
	end
end

function xts.dissector(after_ethernet, packet, root)
	local carried = {}
	local text, kind = dissect_frame(after_ethernet, packet, root, carried)
	local info = { text }
	packet.cols.protocol = "XTS"
	if kind == "BUNDLE" then dissect_bundled(after_ethernet, packet, root, info, carried) end
	packet.cols.info = table.concat(info, "; ")
	carry_on(carried, packet, root)
end

local registered
local function register(ethertype)
	local ethertypes = DissectorTable.get("ethertype")
	if registered then ethertypes:remove(registered, xts) end
	ethertypes:add(ethertype, xts)
	registered = ethertype
end

function xts.prefs_changed()
	if xts.prefs.ethertype ~= registered then register(xts.prefs.ethertype) end
end

register(xts.prefs.ethertype)
"""
