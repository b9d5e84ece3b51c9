#include "run/program.h"

#include "host/device_heap.h"
#include "isa/registry.h"
#include "memory/memory.h"
#include "run/blob.h"
#include "run/fault.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>
#include <stdexcept>

namespace emu {
namespace {
class Blob
{
public:
    Blob(const void* bytes, size_t size) : bytes_(static_cast<const uint8_t*>(bytes)), size_(size)
    {
        if(size < sizeof(BlobHeader))
            throw std::runtime_error("program blob: shorter than its header");
        std::memcpy(&header, bytes, sizeof header);
        if(std::memcmp(header.magic, BLOB_MAGIC, sizeof BLOB_MAGIC) != 0)
            throw std::runtime_error("program blob: of another version");
        if(header.micro_op_bytes != sizeof(MicroOp))
            throw std::runtime_error("program blob: micro-ops of another size");
    }

    template <typename T>
    std::span<const T> table(const BlobTable& where) const
    {
        if(where.offset % alignof(T) != 0 || where.offset > size_ || where.count > (size_ - where.offset) / sizeof(T))
            throw std::runtime_error("program blob: a table lies outside of it");
        return {reinterpret_cast<const T*>(bytes_ + where.offset), where.count};
    }

    std::string text(const BlobText& where) const
    {
        const auto strings = table<char>(header.strings);
        if(where.offset > strings.size() || where.bytes > strings.size() - where.offset)
            throw std::runtime_error("program blob: a string lies outside of it");
        return {strings.data() + where.offset, where.bytes};
    }

    BlobHeader header;

private:
    const uint8_t* bytes_;
    size_t size_;
};

// `words`: the dwords of .text.
void index_words(Code& code, uint64_t words)
{
    const auto inside = [words](const MicroOp& op) { return op.pc / 4 < words; };
    uint64_t first = words, end = 0;
    for(const MicroOp& op : code.ops)
        if(inside(op))
        {
            first = std::min<uint64_t>(first, op.pc / 4);
            end   = std::max<uint64_t>(end, op.pc / 4 + 1);
        }
    code.first_word = static_cast<uint32_t>(first);
    code.index_of_word.assign(end > first ? end - first : 0, UINT32_MAX);
    for(size_t i = 0; i < code.ops.size(); ++i)
        if(inside(code.ops[i]))
            code.index_of_word[code.ops[i].pc / 4 - first] = static_cast<uint32_t>(i);
}

// The first micro-ops of the device library's allocator answer for it.
void replace_allocator(Code& code, const Program& program)
{
    const std::pair<const char*, Handler> calls[] = {{MALLOC_FUNCTION, heap_malloc}, {FREE_FUNCTION, heap_free}};
    for(const auto& [name, handler] : calls)
    {
        const auto symbol = program.variables.find(name);
        if(symbol == program.variables.end())
            continue;
        if(auto* const op = const_cast<MicroOp*>(code.at(symbol->second.address)))
        {
            code.replaced[op] = op->handler;
            op->handler       = handler;
        }
    }
}

// Null if the blob has none.
const Code* load_code(const Blob& blob, Program& program)
{
    const auto ops = blob.table<MicroOp>(blob.header.ops);
    if(ops.empty())
        return nullptr;
    auto code     = std::make_unique<Code>();
    code->program = &program;
    code->ops.assign(ops.begin(), ops.end());
    for(MicroOp& op : code->ops)
    {
        uint64_t hash;
        std::memcpy(&hash, &op.handler, 8);
        op.handler = find_handler(hash);
        if(op.handler == nullptr)
            throw std::runtime_error("program blob: a micro-op that the core does not have");
    }
    index_words(*code, blob.header.text_bytes / 4);
    for(const BlobText& text : blob.table<BlobText>(blob.header.texts))
        code->texts.push_back(blob.text(text));
    for(const BlobLine& line : blob.table<BlobLine>(blob.header.lines))
    {
        if(line.text > code->texts.size())
            throw std::runtime_error("program blob: a source line that is missing");
        code->lines.emplace_back(line.pc, line.text);
    }
    replace_allocator(*code, program);
    return program.codes.emplace_back(std::move(code)).get();
}

void load_image(const Blob& blob, Program& program)
{
    const size_t bytes = blob.header.image_bytes;
    program.image      = allocate(bytes, AllocationKind::Code, "code object");
    if(program.image == nullptr)
        throw std::runtime_error("no room for a code object of " + std::to_string(bytes) + " bytes");
    auto* image          = static_cast<uint8_t*>(program.image);
    program.base         = reinterpret_cast<uint64_t>(image);
    program.bytes        = bytes;
    program.text_address = program.base + blob.header.text_address;
    const auto data      = blob.table<uint8_t>(blob.header.data);
    for(const BlobSegment& segment : blob.table<BlobSegment>(blob.header.segments))
    {
        if(segment.address > bytes || segment.memory_bytes > bytes - segment.address ||
           segment.data_bytes > segment.memory_bytes || segment.data_offset > data.size() ||
           segment.data_bytes > data.size() - segment.data_offset)
            throw std::runtime_error("program blob: a segment lies outside of the image");
        std::memset(image + segment.address, 0, segment.memory_bytes);
        std::memcpy(image + segment.address, data.data() + segment.data_offset, segment.data_bytes);
    }
    for(const BlobRelocation& relocation : blob.table<BlobRelocation>(blob.header.relocations))
    {
        if(relocation.address > bytes - 8)
            throw std::runtime_error("program blob: a relocation lies outside of the image");
        const uint64_t value = program.base + relocation.addend;
        std::memcpy(image + relocation.address, &value, 8);
    }
}

// Where a kernel's code is, and why it can't run, if it can't. Without code there is nothing to
// set.
void set_code(Kernel& kernel, const BlobKernel& record, const Code* code)
{
    if(code == nullptr)
        return;
    if(record.entry >= record.end || record.end > code->ops.size())
        throw std::runtime_error("program blob: kernel " + kernel.name + " has no instructions");
    if(record.refusal > code->texts.size() || record.refused_at >= code->ops.size())
        throw std::runtime_error("program blob: kernel " + kernel.name + " is refused for a reason that is missing");
    kernel.code       = code;
    kernel.entry      = record.entry;
    kernel.end        = record.end;
    kernel.refused_at = record.refused_at;
    if(record.refusal != 0)
        kernel.refusal = code->texts[record.refusal - 1];
}

void load_kernels(const Blob& blob, Program& program, const Code* code)
{
    const auto arguments = blob.table<BlobArgument>(blob.header.arguments);
    const auto hidden    = blob.table<BlobHidden>(blob.header.hidden);
    for(const BlobKernel& record : blob.table<BlobKernel>(blob.header.kernels))
    {
        Kernel kernel{};
        kernel.name    = blob.text(record.name);
        kernel.program = &program;
        kernel.address = program.base + record.address;
        set_code(kernel, record, code);
        kernel.descriptor_address = program.base + record.descriptor_address;
        kernel.lds_bytes          = record.lds_bytes;
        kernel.scratch_bytes      = record.scratch_bytes;
        kernel.kernarg_bytes      = record.kernarg_bytes;
        kernel.rsrc1              = record.rsrc1;
        kernel.rsrc2              = record.rsrc2;
        kernel.rsrc3              = record.rsrc3;
        kernel.properties         = record.properties;
        kernel.preload            = record.preload;
        kernel.max_workgroup      = record.max_workgroup;
        if(record.first_argument + uint64_t{record.argument_count} > arguments.size() ||
           record.first_hidden + uint64_t{record.hidden_count} > hidden.size())
            throw std::runtime_error("program blob: arguments of kernel " + kernel.name +
                                     " lie outside of their table");
        for(const BlobArgument& one : arguments.subspan(record.first_argument, record.argument_count))
            kernel.arguments.push_back({one.offset, one.bytes});
        for(const BlobHidden& one : hidden.subspan(record.first_hidden, record.hidden_count))
        {
            if(one.kind >= static_cast<uint32_t>(HiddenKind::Count))
                throw std::runtime_error("program blob: unknown hidden argument");
            kernel.hidden.push_back({static_cast<HiddenKind>(one.kind), one.offset, one.bytes});
        }
        program.kernels.push_back(std::move(kernel));
    }
}
} // namespace

bool Kernel::has(HiddenKind kind) const
{
    return std::ranges::find(hidden, kind, &HiddenArgument::kind) != hidden.end();
}

const Kernel* Program::find(const std::string& name) const
{
    const auto found = std::ranges::find(kernels, name, &Kernel::name);
    return found == kernels.end() ? nullptr : &*found;
}

const MicroOp* Code::at(uint64_t address) const
{
    const uint64_t word = (address - program->text_address) / 4 - first_word;
    if(address % 4 != 0 || word >= index_of_word.size() || index_of_word[word] == UINT32_MAX)
        return nullptr;
    return &ops[index_of_word[word]];
}

uint64_t Code::virtual_address(const MicroOp& op) const { return program->text_address - program->base + op.pc; }

const char* Code::text(const MicroOp& op) const { return op.text < texts.size() ? texts[op.text].c_str() : "?"; }

std::string Code::source(const MicroOp& op) const
{
    const auto after = std::ranges::upper_bound(lines, op.pc, {}, &std::pair<uint32_t, uint32_t>::first);
    if(after == lines.begin() || std::prev(after)->second == 0)
        return "";
    return texts[std::prev(after)->second - 1];
}

std::string Code::place(const MicroOp& op) const
{
    const std::string line = source(op);
    return "at pc " + hex_text(virtual_address(op)) + "  " + text(op) + (line.empty() ? "" : "  (" + line + ")");
}

Program::~Program()
{
    if(image != nullptr)
        release(image);
}

std::unique_ptr<Program> load_program(const void* bytes, size_t size)
{
    const Blob blob(bytes, size);
    auto program  = std::make_unique<Program>();
    program->arch = blob.header.arch;
    load_image(blob, *program);
    for(const BlobVariable& variable : blob.table<BlobVariable>(blob.header.variables))
        program->variables[blob.text(variable.name)] = {program->base + variable.address, variable.bytes};
    load_kernels(blob, *program, load_code(blob, *program));
    for(const BlobFormat& format : blob.table<BlobFormat>(blob.header.formats))
        program->formats[format.hash] = blob.text(format.text);
    return program;
}

void add_code(Program& program, const void* bytes, size_t size)
{
    const Blob blob(bytes, size);
    const Code* code = load_code(blob, program);
    for(const BlobKernel& record : blob.table<BlobKernel>(blob.header.kernels))
        for(Kernel& kernel : program.kernels)
            if(kernel.code == nullptr && kernel.name == blob.text(record.name))
                set_code(kernel, record, code);
}
} // namespace emu
