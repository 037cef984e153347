-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Wireshark dissector for Tsumugi packets (format: docs/wire.md). Tested with Wireshark 4.0.
--
-- Numbers of 64 bits are UInt64 objects, since a Lua number holds 53. Nothing is read before it is known
-- to be there, so that no input raises a Lua error; a capture cut short (snap length) is said to be cut.

local VERSION = 1
local DEFAULT_PORT = 7411
local HEADER_BYTES = 48
local WORD_PSNS = 32
local WORDS_MAX = 33
local PIECE_ALIGN = 64
local PACKET_BODY_BYTES_MAX = 8924
local GROUP_BYTES = 88
local GROUP_WORDS = 8
local TABLE_BYTES = 16 -- in front of the entries
local ENTRY_BYTES = 8
local RECEIVERS_MAX = 63
local MESSAGE_BYTES_MAX = UInt64.new(0, 256) -- 2^40

local KINDS = {
    [1] = "DATA", [2] = "ACK", [3] = "NAK", [4] = "XOFF", [5] = "XON", [6] = "PROBE", [7] = "HELLO",
    [8] = "CHALLENGE", [9] = "WELCOME", [10] = "BYE", [11] = "BYE_ACK", [12] = "RESET",
    [13] = "PIECE", [14] = "SIZE_PROBE", [15] = "SIZE_ACK", [16] = "DAMAGED",
    [17] = "JOIN", [18] = "ARRIVE", [19] = "LEAVE", [20] = "NOTICE", [21] = "RELEASE",
    [22] = "MULTICAST", [23] = "RELAY",
}
local FORMS = { [1] = "whole", [2] = "fragment", [3] = "remote" }
local OPCODES = {
    [1] = "write", [2] = "piece", [3] = "read", [4] = "atomic", [5] = "fence", [6] = "notify", [7] = "reply",
    [8] = "part",
}
local REPEATS = { [0] = "selective", [1] = "go-back-N" }
local OPERATIONS = {
    [0] = "none (barrier)", [1] = "sum", [2] = "min", [3] = "max", [4] = "and", [5] = "or", [6] = "xor",
}
local GROUP_NOTICES = {
    [1] = "joined", [2] = "waiting", [3] = "lost", [4] = "unknown", [5] = "refused", [6] = "disagreement",
    [7] = "no box",
}
local STATUSES = { [0] = "bad", [1] = "good", [2] = "not verified" }

local tsumugi = Proto("tsumugi", "Tsumugi")

tsumugi.prefs.verify_crc = Pref.bool("Verify the body's CRC32C", true, "Compute CRC32C over each packet's body")

local f = {
    version = ProtoField.uint8("tsumugi.version", "Version"),
    kind = ProtoField.uint8("tsumugi.kind", "Kind", base.DEC, KINDS),
    flags = ProtoField.uint8("tsumugi.flags", "Flags", base.HEX),
    ack_request = ProtoField.bool("tsumugi.flags.ack_request", "ACK wanted at once", 8, nil, 0x01),
    resent = ProtoField.bool("tsumugi.flags.resent", "Sent before", 8, nil, 0x02),
    has_ack = ProtoField.bool("tsumugi.flags.has_ack", "Ack and credit are meaningful", 8, nil, 0x04),
    ask_by_probe = ProtoField.bool("tsumugi.flags.ask_by_probe", "Long packets cannot be answered: ask by PROBE", 8, nil, 0x08),
    away = ProtoField.bool("tsumugi.flags.away", "Another process will go on", 8, nil, 0x10),
    unchecked = ProtoField.bool("tsumugi.flags.unchecked", "Without a CRC of the body", 8, nil, 0x40),
    at_leisure = ProtoField.bool("tsumugi.flags.at_leisure", "That ACK may take its time", 8, nil, 0x20),
    mixed = ProtoField.bool("tsumugi.flags.mixed", "The body's check is no CRC", 8, nil, 0x80),
    path = ProtoField.uint8("tsumugi.path", "Path"),
    check = ProtoField.uint32("tsumugi.check", "Header check", base.HEX),
    check_status = ProtoField.uint8("tsumugi.check.status", "Header check status", base.DEC, STATUSES),
    token = ProtoField.uint64("tsumugi.token", "Token", base.HEX),
    flow = ProtoField.uint32("tsumugi.flow", "Flow"),
    epoch = ProtoField.uint32("tsumugi.epoch", "Epoch", base.HEX),
    psn = ProtoField.uint64("tsumugi.psn", "PSN", base.DEC),
    ack = ProtoField.uint64("tsumugi.ack", "Ack", base.DEC),
    credit = ProtoField.uint16("tsumugi.credit", "Credit (PSNs)"),
    body_bytes = ProtoField.uint16("tsumugi.body_bytes", "Body bytes"),
    body_crc = ProtoField.uint32("tsumugi.body_crc", "Body CRC32C, or mix", base.HEX),
    body_crc_status = ProtoField.uint8("tsumugi.body_crc.status", "Body CRC status", base.DEC, STATUSES),
    body = ProtoField.bytes("tsumugi.body", "Body"),
    malformed = ProtoField.string("tsumugi.malformed", "Malformed"),
    trailing = ProtoField.bytes("tsumugi.trailing", "Bytes behind the packet"),

    packet_bytes = ProtoField.uint16("tsumugi.piece.packet_bytes", "Bytes of the packet's body"),
    piece_at = ProtoField.uint16("tsumugi.piece.at", "Place of the piece in it"),
    packet_crc = ProtoField.uint32("tsumugi.piece.packet_crc", "CRC32C of the packet's body", base.HEX),
    piece_data = ProtoField.bytes("tsumugi.piece.data", "Data"),

    channel = ProtoField.uint16("tsumugi.frame.channel", "Channel"),
    form = ProtoField.uint8("tsumugi.frame.form", "Form", base.DEC, FORMS),
    bytes = ProtoField.uint32("tsumugi.frame.bytes", "Bytes"),
    message = ProtoField.uint32("tsumugi.frame.message", "Message"),
    offset = ProtoField.uint64("tsumugi.frame.offset", "Offset", base.DEC),
    total = ProtoField.uint64("tsumugi.frame.total", "Total bytes", base.DEC),
    data = ProtoField.bytes("tsumugi.frame.data", "Data"),
    padding = ProtoField.bytes("tsumugi.frame.padding", "Padding"),
    opcode = ProtoField.uint16("tsumugi.remote.opcode", "Opcode", base.DEC, OPCODES),
    key = ProtoField.uint64("tsumugi.remote.key", "Key, or status", base.HEX),
    remote_address = ProtoField.uint64("tsumugi.remote.address", "Address, or place of the data", base.HEX),
    operation = ProtoField.uint64("tsumugi.remote.operation", "Operation", base.DEC),

    echo = ProtoField.uint64("tsumugi.answer.echo", "PSN deposited last", base.DEC),
    delay = ProtoField.uint32("tsumugi.answer.delay_ns", "Delay (ns)"),
    words = ProtoField.uint32("tsumugi.answer.words", "Bitmap words"),
    bitmap = ProtoField.bytes("tsumugi.answer.bitmap", "Bitmap"),
    received = ProtoField.string("tsumugi.answer.received", "Received from ack on"),

    job = ProtoField.uint64("tsumugi.offer.job", "Job", base.HEX),
    nonce = ProtoField.uint64("tsumugi.offer.nonce", "Nonce", base.HEX),
    cookie = ProtoField.uint64("tsumugi.offer.cookie", "Cookie", base.HEX),
    offer_token = ProtoField.uint64("tsumugi.offer.token", "Token of the offered flow", base.HEX),
    offer_flow = ProtoField.uint32("tsumugi.offer.flow", "Index of the offered flow"),
    repeat_mode = ProtoField.uint8("tsumugi.offer.repeat", "Repair", base.DEC, REPEATS),
    listens = ProtoField.bool("tsumugi.offer.listens", "A TCP socket listens on the port", 8, nil, 0x01),
    datagram_bytes = ProtoField.uint16("tsumugi.offer.datagram_bytes", "Longest datagram (bytes)"),
    message_bytes_max = ProtoField.uint64("tsumugi.offer.message_bytes_max", "Longest message (bytes)", base.DEC),

    group_job = ProtoField.uint64("tsumugi.group.job", "Job", base.HEX),
    group_key = ProtoField.uint64("tsumugi.group.key", "Key", base.HEX),
    group_number = ProtoField.uint64("tsumugi.group.number", "Group", base.DEC),
    group_box = ProtoField.uint64("tsumugi.group.box", "Box that joins, or 0", base.HEX),
    group_first = ProtoField.uint64("tsumugi.group.first", "Generation whose release has PSN 0", base.DEC),
    group_size = ProtoField.uint16("tsumugi.group.size", "Members in all"),
    group_member = ProtoField.uint16("tsumugi.group.member", "Member"),
    group_weight = ProtoField.uint16("tsumugi.group.weight", "Members that the sender stands for"),
    group_via = ProtoField.uint8("tsumugi.group.via", "Slot below"),
    group_operation = ProtoField.uint8("tsumugi.group.operation", "Operation", base.DEC, OPERATIONS),
    group_count = ProtoField.uint8("tsumugi.group.count", "Words"),
    group_generation = ProtoField.uint64("tsumugi.group.generation", "Generation", base.DEC),
    group_word = ProtoField.uint64("tsumugi.group.word", "Word", base.HEX),
    group_notice = ProtoField.uint8("tsumugi.group.notice", "Notice", base.DEC, GROUP_NOTICES),
    group_seat = ProtoField.uint32("tsumugi.group.seat", "Seat"),
    group_seat_token = ProtoField.uint64("tsumugi.group.seat_token", "Token of the seat", base.HEX),

    table_base = ProtoField.uint64("tsumugi.multicast.base", "PSN that the receivers' are counted from", base.DEC),
    frames_crc = ProtoField.uint32("tsumugi.multicast.frames_crc", "CRC32C of the frames", base.HEX),
    frames_crc_status = ProtoField.uint8("tsumugi.multicast.frames_crc.status", "Frames' CRC status", base.DEC, STATUSES),
    table_tag = ProtoField.uint32("tsumugi.multicast.tag", "Lower half of the flow's token, or 0", base.HEX),
    table_after = ProtoField.uint32("tsumugi.multicast.after", "PSN, counted from the base"),
}
tsumugi.fields = f

local e = {
    malformed = ProtoExpert.new(
        "tsumugi.expert.malformed", "Malformed packet", expert.group.MALFORMED, expert.severity.ERROR),
    check = ProtoExpert.new(
        "tsumugi.expert.check", "Header check failed", expert.group.CHECKSUM, expert.severity.ERROR),
    crc = ProtoExpert.new(
        "tsumugi.expert.crc", "Body CRC32C failed", expert.group.CHECKSUM, expert.severity.ERROR),
    frames_crc = ProtoExpert.new(
        "tsumugi.expert.frames_crc", "CRC32C of the frames failed", expert.group.CHECKSUM, expert.severity.ERROR),
    resent = ProtoExpert.new(
        "tsumugi.expert.resent", "Sent before", expert.group.SEQUENCE, expert.severity.NOTE),
    xoff = ProtoExpert.new(
        "tsumugi.expert.xoff", "Receive queue full", expert.group.SEQUENCE, expert.severity.NOTE),
    trailing = ProtoExpert.new(
        "tsumugi.expert.trailing", "Bytes behind what was announced", expert.group.PROTOCOL, expert.severity.NOTE),
    cut = ProtoExpert.new(
        "tsumugi.expert.cut", "Cut short by the capture", expert.group.UNDECODED, expert.severity.NOTE),
}
tsumugi.experts = { e.malformed, e.check, e.crc, e.frames_crc, e.resent, e.xoff, e.trailing, e.cut }

-- ---- sums ------------------------------------------------------------------------------------------

-- Wireshark brings one or the other with every version of Lua; without any, CRCs are not verified.
local bits = bit or bit32

local crc_table = {}
if bits then
    for byte = 0, 255 do
        local crc = byte
        for _ = 1, 8 do
            local low = bits.band(crc, 1)
            crc = bits.rshift(crc, 1)
            if low == 1 then crc = bits.bxor(crc, 0x82f63b78) end
        end
        crc_table[byte] = crc
    end
end

-- CRC32C of a Lua string; 0 for the empty one.
local function crc32c(text)
    local band, bxor, rshift = bits.band, bits.bxor, bits.rshift
    local crc = 0xffffffff
    for i = 1, #text do
        crc = bxor(rshift(crc, 8), crc_table[band(bxor(crc, text:byte(i)), 0xff)])
    end
    return bits.bnot(crc) % 4294967296 -- BitOp's numbers are signed
end

local MIX = UInt64.new(0x1ce4e5b9, 0xbf58476d)

local function mix_word(sum, word)
    sum = sum:bxor(word) * MIX
    return sum:bxor(sum:rshift(32))
end

-- The header check over six words, the check itself taken as 0. The header must be there.
local function header_check(tvb, at)
    local sum = mix_word(UInt64.new(0, 0), UInt64.new(tvb(at, 4):le_uint(), 0))
    for index = 1, 5 do sum = mix_word(sum, tvb(at + 8 * index, 8):le_uint64()) end
    return sum:lower()
end

-- The mix of so many bytes, a multiple of 8. They must be there.
local function mix(tvb, at, bytes)
    local sum = UInt64.new(0, 0)
    for index = 0, bytes / 8 - 1 do sum = mix_word(sum, tvb(at + 8 * index, 8):le_uint64()) end
    return sum:lower()
end

local function has_flag(tvb, at, flag)
    return math.floor(tvb(at + 2, 1):uint() / flag) % 2 == 1
end

local function is_for_several(kind)
    return kind == 22 or kind == 23
end

-- Bytes of the table in a body for several receivers; nil: it is no frames and a table.
local function table_bytes(tvb, at, bytes)
    local receivers = tvb(at + 40, 2):le_uint()
    local length = TABLE_BYTES + ENTRY_BYTES * receivers
    if receivers < 1 or receivers > RECEIVERS_MAX or bytes < GROUP_BYTES or bytes < length or bytes % 8 ~= 0 then
        return nil
    end
    return length
end

-- How many bytes at the end of the body are mixed; nil: body_crc is a CRC. With a body of another length than those of groups, and
-- without a table where there is to be one, the flag means nothing.
local function mixed_bytes(tvb, at, bytes)
    if not has_flag(tvb, at, 128) then return nil end
    if is_for_several(tvb(at + 1, 1):uint()) then return table_bytes(tvb, at, bytes) end
    return bytes == GROUP_BYTES and bytes or nil
end

-- ---- bodies: each returns a text for the summary and, for a body that is refused, the reason ---------

local function malformed(tree, reason, info)
    tree:add(f.malformed, reason):set_generated()
    tree:add_proto_expert_info(info or e.malformed, "Malformed: " .. reason)
    return reason
end

-- One frame at `at`, counted from the start of the body. Returns the place of the next, or nil and why not.
local function dissect_frame(tvb, body, at, bytes, tree)
    local have = bytes - at
    local here = body + at
    if have < 8 then
        return nil, "frame_truncated " .. at
    end
    local form = tvb(here + 2, 1):uint()
    if form == 1 then
        local length = tvb(here + 4, 4):le_uint()
        if have - 8 < length then
            return nil, "frame_truncated " .. at
        end
        local padding = math.min((8 - length % 8) % 8, have - 8 - length)
        local channel = tvb(here, 2):le_uint()
        local frame = tree:add(
            tvb(here, 8 + length + padding), string.format("Message of %d bytes for channel %d", length, channel))
        frame:add_le(f.channel, tvb(here, 2))
        frame:add_le(f.form, tvb(here + 2, 1))
        frame:add_le(f.bytes, tvb(here + 4, 4))
        if length > 0 then frame:add(f.data, tvb(here + 8, length)) end
        if padding > 0 then frame:add(f.padding, tvb(here + 8 + length, padding)) end
        return at + 8 + length + padding
    elseif form == 3 then
        local length = tvb(here + 4, 4):le_uint()
        if have < 32 or have - 32 < length then
            return nil, "frame_truncated " .. at
        end
        local padding = math.min((8 - length % 8) % 8, have - 32 - length)
        local opcode = tvb(here, 2):le_uint()
        local frame = tree:add(
            tvb(here, 32 + length + padding),
            string.format("Remote %s, %d bytes of data", OPCODES[opcode] or tostring(opcode), length))
        frame:add_le(f.opcode, tvb(here, 2))
        frame:add_le(f.form, tvb(here + 2, 1))
        frame:add_le(f.bytes, tvb(here + 4, 4))
        frame:add_le(f.key, tvb(here + 8, 8))
        frame:add_le(f.remote_address, tvb(here + 16, 8))
        frame:add_le(f.operation, tvb(here + 24, 8))
        if length > 0 then frame:add(f.data, tvb(here + 32, length)) end
        if padding > 0 then frame:add(f.padding, tvb(here + 32 + length, padding)) end
        return at + 32 + length + padding
    elseif form ~= 2 then
        return nil, "frame_form " .. form
    elseif have < 24 then
        return nil, "frame_truncated " .. at
    end
    local length = have - 24
    local offset, total = tvb(here + 8, 8):le_uint64(), tvb(here + 16, 8):le_uint64()
    if length == 0 or MESSAGE_BYTES_MAX < total or total <= offset then
        return nil, string.format("frame_range %s %s", tostring(offset), tostring(total))
    end
    local padding = 0
    if total - offset < UInt64.new(length, 0) then
        padding = length - (total - offset):tonumber()
        length = length - padding
    end
    local frame = tree:add(
        tvb(here, have),
        string.format("Fragment of %d bytes at %s of %s for channel %d", length, tostring(offset), tostring(total),
            tvb(here, 2):le_uint()))
    frame:add_le(f.channel, tvb(here, 2))
    frame:add_le(f.form, tvb(here + 2, 1))
    frame:add_le(f.message, tvb(here + 4, 4))
    frame:add_le(f.offset, tvb(here + 8, 8))
    frame:add_le(f.total, tvb(here + 16, 8))
    frame:add(f.data, tvb(here + 24, length))
    if padding > 0 then frame:add(f.padding, tvb(here + 24 + length, padding)) end
    return at + have
end

local function dissect_contribution(tvb, body, bytes, tree)
    local operation, count = tvb(body + 8, 1):uint(), tvb(body + 9, 1):uint()
    local generation = tvb(body + 16, 8):le_uint64()
    if not OPERATIONS[operation] or count > GROUP_WORDS or generation == UInt64.new(0, 0) then
        return "", "group"
    end
    local contribution = tree:add(tvb(body, bytes), "Contribution")
    contribution:add_le(f.group_operation, tvb(body + 8, 1))
    contribution:add_le(f.group_count, tvb(body + 9, 1))
    contribution:add_le(f.group_via, tvb(body + 10, 1))
    contribution:add_le(f.group_generation, tvb(body + 16, 8))
    for index = 0, GROUP_WORDS - 1 do contribution:add_le(f.group_word, tvb(body + 24 + 8 * index, 8)) end
    return string.format("generation=%s %s", tostring(generation), OPERATIONS[operation])
end

local function dissect_join(tvb, body, bytes, tree)
    local box = tvb(body + 32, 8):le_uint64()
    local size, member = tvb(body + 48, 2):le_uint(), tvb(body + 50, 2):le_uint()
    local weight = tvb(body + 52, 2):le_uint()
    local is_endpoint = box == UInt64.new(0, 0)
    if member >= size or weight == 0 or weight > size or (is_endpoint and weight ~= 1) then
        return "", "group"
    end
    local join = tree:add(tvb(body, bytes), "Join")
    join:add_le(f.group_job, tvb(body + 8, 8))
    join:add_le(f.group_key, tvb(body + 16, 8))
    join:add_le(f.group_number, tvb(body + 24, 8))
    join:add_le(f.group_box, tvb(body + 32, 8))
    join:add_le(f.group_first, tvb(body + 40, 8))
    join:add_le(f.group_size, tvb(body + 48, 2))
    join:add_le(f.group_member, tvb(body + 50, 2))
    join:add_le(f.group_weight, tvb(body + 52, 2))
    join:add_le(f.group_via, tvb(body + 54, 1))
    return string.format("group=%s %s member=%d weight=%d of %d", tostring(tvb(body + 24, 8):le_uint64()),
        is_endpoint and "endpoint" or "box", member, weight, size)
end

local function dissect_group_answer(tvb, body, bytes, tree)
    local notice = tvb(body + 8, 1):uint()
    if not GROUP_NOTICES[notice] then
        return "", "group"
    end
    local answer = tree:add(tvb(body, bytes), "Answer of a box")
    answer:add_le(f.group_notice, tvb(body + 8, 1))
    answer:add_le(f.group_via, tvb(body + 9, 1))
    answer:add_le(f.group_member, tvb(body + 10, 2))
    answer:add_le(f.group_weight, tvb(body + 12, 2))
    answer:add_le(f.group_seat, tvb(body + 16, 4))
    answer:add_le(f.group_seat_token, tvb(body + 24, 8))
    answer:add_le(f.group_generation, tvb(body + 32, 8))
    return string.format("generation=%s %s", tostring(tvb(body + 32, 8):le_uint64()), GROUP_NOTICES[notice])
end

-- `dissect` for the body of a packet of a group, which must have the flag and the length.
local function of_a_group(dissect)
    return function(tvb, body, bytes, tree)
        if not has_flag(tvb, body - HEADER_BYTES, 128) then
            return "", "group_unmixed"
        elseif bytes ~= GROUP_BYTES then
            return "", "group_length " .. bytes
        end
        return dissect(tvb, body, bytes, tree)
    end
end

local function dissect_frames(tvb, body, bytes, tree)
    local at, frames = 0, 0
    while at < bytes do
        local next_at, reason = dissect_frame(tvb, body, at, bytes, tree)
        if not next_at then
            return string.format("frames=%d", frames), reason
        end
        at, frames = next_at, frames + 1
    end
    return string.format("frames=%d", frames)
end

local function dissect_data(tvb, body, bytes, tree)
    if mixed_bytes(tvb, body - HEADER_BYTES, bytes) and tvb(body + 2, 1):uint() == 0 then
        return dissect_contribution(tvb, body, bytes, tree)
    end
    return dissect_frames(tvb, body, bytes, tree)
end

-- Whether so many bytes of a body have the CRC that is announced: 1, or not: 0; 2: nobody knows. None was made where `may_be_none`
-- and 0 is announced.
local function crc_status(tvb, at, bytes, announced, may_be_none)
    if bytes == 0 then return announced == 0 and 1 or 0 end
    if announced == 0 and may_be_none then return 2 end
    if not bits or not tsumugi.prefs.verify_crc then return 2 end
    return crc32c(tvb:raw(at, bytes)) == announced and 1 or 0
end

local function dissect_multicast(tvb, body, bytes, tree)
    local at = body - HEADER_BYTES
    if not has_flag(tvb, at, 128) then
        return "", "group_unmixed"
    end
    local receivers = tvb(at + 40, 2):le_uint()
    local length = table_bytes(tvb, at, bytes)
    if not length then
        return "", string.format("table %d %d", bytes, receivers)
    end
    local frames = bytes - length
    local place = body + frames
    local list = tree:add(tvb(place, length), string.format("Table for %d receivers", receivers))
    list:add_le(f.table_base, tvb(place, 8))
    local crc = list:add_le(f.frames_crc, tvb(place + 8, 4))
    local status = crc_status(tvb, body, frames, tvb(place + 8, 4):le_uint(), has_flag(tvb, at, 64))
    crc:append_text(" (" .. STATUSES[status] .. ")")
    list:add(f.frames_crc_status, status):set_generated()
    local base, named = tvb(place, 8):le_uint64(), 0
    for index = 0, receivers - 1 do
        local here = place + TABLE_BYTES + ENTRY_BYTES * index
        local tag, after = tvb(here, 4):le_uint(), tvb(here + 4, 4):le_uint()
        local text = string.format("Member %d: ", index + 1)
        if tag == 0 then
            text = text .. "nothing"
        else
            named = named + 1
            text = text .. "PSN " .. tostring(base + UInt64.new(after, 0))
        end
        local entry = list:add(tvb(here, ENTRY_BYTES), text)
        entry:add_le(f.table_tag, tvb(here, 4))
        entry:add_le(f.table_after, tvb(here + 4, 4))
    end
    local summary = string.format("receivers=%d", named)
    if status == 0 then
        list:add_proto_expert_info(e.frames_crc)
        return summary .. " (CRC of the frames wrong)"
    end
    local text, reason = dissect_frames(tvb, body, frames, tree)
    return summary .. " " .. text, reason
end

local U64_MAX = UInt64.new(0xffffffff, 0xffffffff)

-- The runs of set bits from `ack` on, as text: "71-75, 98".
local function received_runs(tvb, at, words, ack)
    local skip = ack:lower() % WORD_PSNS
    local base = ack - UInt64.new(skip, 0)
    local room = U64_MAX - base -- numbers end; a bitmap may announce more
    local runs, first = {}, nil
    local last_index = WORD_PSNS * words - 1
    if room < UInt64.new(WORD_PSNS * words, 0) then last_index = math.min(last_index, room:lower()) end
    local function close(index)
        if not first then return end
        local from, to = tostring(base + UInt64.new(first, 0)), tostring(base + UInt64.new(index, 0))
        runs[#runs + 1] = from == to and from or from .. "-" .. to
        first = nil
    end
    for index = skip, last_index do
        local byte = tvb(at + math.floor(index / 8), 1):uint()
        if math.floor(byte / 2 ^ (index % 8)) % 2 == 1 then
            first = first or index
        else
            close(index - 1)
        end
    end
    close(last_index)
    return #runs == 0 and "none" or table.concat(runs, ", ")
end

local function dissect_answer(tvb, body, bytes, tree, ack)
    if bytes < 16 then
        return "", "sack"
    end
    local words = tvb(body + 12, 4):le_uint()
    if words > WORDS_MAX or bytes - 16 < 4 * words then
        return "", "sack"
    end
    local answer = tree:add(tvb(body, 16 + 4 * words), "Answer")
    answer:add_le(f.echo, tvb(body, 8))
    answer:add_le(f.delay, tvb(body + 8, 4))
    answer:add_le(f.words, tvb(body + 12, 4))
    local runs = received_runs(tvb, body + 16, words, ack)
    if words > 0 then
        answer:add(f.bitmap, tvb(body + 16, 4 * words))
        answer:add(f.received, tvb(body + 16, 4 * words), runs)
    else
        answer:add(f.received, runs):set_generated()
    end
    if bytes > 16 + 4 * words then
        local behind = tvb(body + 16 + 4 * words, bytes - 16 - 4 * words)
        tree:add(f.trailing, behind):add_proto_expert_info(e.trailing)
    end
    return runs == "none" and "" or "received=" .. runs
end

local function dissect_offer(tvb, body, bytes, tree)
    if bytes ~= 56 then
        return "", "offer_length " .. bytes
    end
    local repeat_mode = tvb(body + 36, 1):uint()
    if repeat_mode > 1 then
        return "", "offer_repeat " .. repeat_mode
    end
    local offer = tree:add(tvb(body, bytes), "Offer")
    offer:add_le(f.job, tvb(body, 8))
    offer:add_le(f.nonce, tvb(body + 8, 8))
    offer:add_le(f.cookie, tvb(body + 16, 8))
    offer:add_le(f.offer_token, tvb(body + 24, 8))
    offer:add_le(f.offer_flow, tvb(body + 32, 4))
    offer:add_le(f.repeat_mode, tvb(body + 36, 1))
    offer:add_le(f.listens, tvb(body + 37, 1))
    offer:add_le(f.datagram_bytes, tvb(body + 38, 2))
    offer:add_le(f.message_bytes_max, tvb(body + 40, 8))
    return string.format("flow=%d repair=%s", tvb(body + 32, 4):le_uint(), REPEATS[repeat_mode])
end

local function dissect_challenge(tvb, body, bytes, tree)
    if bytes ~= 16 then
        return "", "challenge_length " .. bytes
    end
    local challenge = tree:add(tvb(body, bytes), "Challenge")
    challenge:add_le(f.nonce, tvb(body, 8))
    challenge:add_le(f.cookie, tvb(body + 8, 8))
    return ""
end

local function dissect_piece(tvb, body, bytes, tree)
    if bytes < 8 then return "", "piece " .. bytes end
    local all, at, data = tvb(body, 2):le_uint(), tvb(body + 2, 2):le_uint(), bytes - 8
    local ends = at + data
    if data == 0 or all > PACKET_BODY_BYTES_MAX or at % PIECE_ALIGN ~= 0 or ends > all
        or (ends < all and ends % PIECE_ALIGN ~= 0) then
        return "", "piece " .. bytes
    end
    local piece = tree:add(tvb(body, bytes), "Piece")
    piece:add_le(f.packet_bytes, tvb(body, 2))
    piece:add_le(f.piece_at, tvb(body + 2, 2))
    piece:add_le(f.packet_crc, tvb(body + 4, 4))
    piece:add(f.piece_data, tvb(body + 8, data))
    return string.format("bytes=%d..%d of %d", at, ends, all)
end

local function dissect_nothing()
    return ""
end

local BODIES = {
    [1] = dissect_data, [2] = dissect_answer, [3] = dissect_answer, [4] = dissect_answer, [5] = dissect_answer,
    [6] = dissect_nothing, [7] = dissect_offer, [8] = dissect_challenge, [9] = dissect_offer,
    [10] = dissect_nothing, [11] = dissect_nothing, [12] = dissect_nothing,
    [13] = dissect_piece, [14] = dissect_nothing, [15] = dissect_nothing, [16] = dissect_nothing,
    [17] = of_a_group(dissect_join), [18] = of_a_group(dissect_contribution), [19] = of_a_group(dissect_nothing),
    [20] = of_a_group(dissect_group_answer), [21] = of_a_group(dissect_contribution),
    [22] = dissect_multicast, [23] = dissect_multicast,
}

-- ---- packets ---------------------------------------------------------------------------------------

local function add_header(tvb, at, tree, check_good)
    local function add(field, offset, bytes)
        return tree:add_le(field, tvb(at + offset, bytes))
    end
    add(f.version, 0, 1)
    add(f.kind, 1, 1)
    local flags = add(f.flags, 2, 1)
    flags:add(f.ack_request, tvb(at + 2, 1))
    local resent = flags:add(f.resent, tvb(at + 2, 1))
    if check_good and has_flag(tvb, at, 2) then resent:add_proto_expert_info(e.resent) end
    flags:add(f.has_ack, tvb(at + 2, 1))
    flags:add(f.ask_by_probe, tvb(at + 2, 1))
    flags:add(f.away, tvb(at + 2, 1))
    flags:add(f.at_leisure, tvb(at + 2, 1))
    flags:add(f.unchecked, tvb(at + 2, 1))
    flags:add(f.mixed, tvb(at + 2, 1))
    add(f.path, 3, 1)
    local check = add(f.check, 4, 4)
    check:append_text(check_good and " (right)" or string.format(" (wrong, should be 0x%08x)", header_check(tvb, at)))
    tree:add(f.check_status, check_good and 1 or 0):set_generated()
    add(f.token, 8, 8)
    add(f.flow, 16, 4)
    add(f.epoch, 20, 4)
    add(f.psn, 24, 8)
    add(f.ack, 32, 8)
    add(f.credit, 40, 2)
    add(f.body_bytes, 42, 2)
    return add(f.body_crc, 44, 4)
end

-- Judges the CRC, or the mix; returns whether the body may be read.
local function verify_crc(tvb, at, bytes, tree, item)
    local announced = tvb(at + 44, 4):le_uint()
    local mixed, body = mixed_bytes(tvb, at, bytes), at + HEADER_BYTES
    local status
    if mixed then
        status = mix(tvb, body + bytes - mixed, mixed) == announced and 1 or 0
    else
        -- In DATA as the two sides have agreed.
        local may_be_none = tvb(at + 1, 1):uint() == 1 and has_flag(tvb, at, 64)
        status = crc_status(tvb, body, bytes, announced, may_be_none)
    end
    item:append_text(" (" .. STATUSES[status] .. ")")
    tree:add(f.body_crc_status, status):set_generated()
    return status ~= 0
end

-- Why a header that is there is refused, in the order in which every receiver judges; nil when it is not.
local function refuse_header(tvb, at, have)
    local kind, bytes = tvb(at + 1, 1):uint(), tvb(at + 42, 2):le_uint()
    if tvb(at, 1):uint() ~= VERSION then
        return "version " .. tvb(at, 1):uint()
    elseif tvb(at + 4, 4):le_uint() ~= header_check(tvb, at) then
        return "check"
    elseif not KINDS[kind] then
        return "kind " .. kind
    elseif tvb(at + 20, 4):le_uint() == 0 then
        return "epoch"
    elseif have - HEADER_BYTES < bytes then
        return string.format("truncated %d %d", have, HEADER_BYTES + bytes)
    end
    return nil
end

-- Dissects the packet at `at`. Returns a summary and the place behind it, or nil for the place when nothing
-- behind it can be found.
local function dissect_packet(tvb, at, tree)
    local have, captured = tvb:reported_len() - at, tvb:captured_len() - at
    local packet = tree:add(tsumugi, tvb(at, captured))
    if have < HEADER_BYTES then
        return malformed(packet, string.format("truncated %d %d", have, HEADER_BYTES)), nil
    elseif captured < HEADER_BYTES then
        packet:add_proto_expert_info(e.cut)
        return "cut short by the capture", nil
    end
    local reason = refuse_header(tvb, at, have)
    if reason and reason:find("^version") then
        packet:add(f.version, tvb(at, 1))
        return malformed(packet, reason), nil -- nothing else is known of another version
    end
    local crc_item = add_header(tvb, at, packet, reason ~= "check")
    if reason then
        return malformed(packet, reason, reason == "check" and e.check or nil), nil
    end

    local kind, bytes = tvb(at + 1, 1):uint(), tvb(at + 42, 2):le_uint()
    local ack = tvb(at + 32, 8):le_uint64()
    packet:set_len(math.min(HEADER_BYTES + bytes, captured))
    packet:append_text(", " .. KINDS[kind])
    local summary = KINDS[kind]
    if kind == 1 or kind == 4 or kind == 10 or (kind >= 13 and kind <= 16) or kind == 21 then summary = summary .. " psn=" .. tostring(tvb(at + 24, 8):le_uint64()) end
    if has_flag(tvb, at, 4) then
        summary = summary .. string.format(" ack=%s credit=%d", tostring(ack), tvb(at + 40, 2):le_uint())
    end
    if kind == 4 then packet:add_proto_expert_info(e.xoff) end
    if captured < HEADER_BYTES + bytes then
        packet:add_proto_expert_info(e.cut)
        return summary .. " (cut short by the capture)", nil
    end

    local body = at + HEADER_BYTES
    local body_tree = bytes > 0 and packet:add(f.body, tvb(body, bytes)) or packet
    if not verify_crc(tvb, at, bytes, packet, crc_item) then
        packet:add_proto_expert_info(e.crc)
        return summary .. " (body CRC wrong)", body + bytes
    end
    local text, body_reason = BODIES[kind](tvb, body, bytes, body_tree, ack)
    if text ~= "" then summary = summary .. " " .. text end
    if body_reason then summary = summary .. " malformed: " .. malformed(packet, body_reason) end
    return summary, body + bytes
end

-- Segmentation offload shows several packets as one datagram: they lie behind each other.
function tsumugi.dissector(tvb, pinfo, tree)
    if tvb:captured_len() == 0 then return 0 end
    pinfo.cols.protocol = "Tsumugi"
    local summaries, at = {}, 0
    while at and at < tvb:captured_len() do
        summaries[#summaries + 1], at = dissect_packet(tvb, at, tree)
    end
    pinfo.cols.info = table.concat(summaries, " | ")
    return tvb:captured_len()
end

-- Whether a datagram on any port is ours: 32 bits of check, besides version, kind and epoch.
local function heuristic(tvb, pinfo, tree)
    if tvb:captured_len() < HEADER_BYTES then return false end
    local reason = refuse_header(tvb, 0, tvb:reported_len())
    if reason and not reason:find("^truncated") then return false end
    -- From here on the whole conversation is ours, its damaged packets included.
    pinfo.conversation = tsumugi
    tsumugi.dissector(tvb, pinfo, tree)
    return true
end

tsumugi:register_heuristic("udp", heuristic)
DissectorTable.get("udp.port"):add(DEFAULT_PORT, tsumugi)
