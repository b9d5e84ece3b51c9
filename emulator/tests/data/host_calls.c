// One wave that asks the host as ROCm's device library does (ockl/src/hostcall_impl.cl), with words
// that a test chose: `data` holds the eight words of each lane for each packet, and behind all of
// them has room for the two words that each lane is answered. A first word of all ones leaves the
// lane out. The message's number, which the host answers to a lane's first packet, is put into the
// later ones.
typedef unsigned long word;
#define GLOBAL   volatile __attribute__((address_space(1)))
#define CONSTANT __attribute__((address_space(4)))

struct header
{
    word next, active;
    unsigned service, control;
};

struct buffer
{
    GLOBAL struct header* headers;
    GLOBAL word* payloads;
    word doorbell, free, ready, mask;
};

enum
{
    LANES           = 64,
    WORDS           = 8,
    HOSTCALL_BUFFER = 80, // of the hidden arguments of code objects 5
    NUMBER          = 256,
    ROUNDING        = 1 | 0 << 6 | 3 << 11, // hwreg(HW_REG_MODE, 0, 4)
};

__attribute__((amdgpu_kernel)) void test_kernel(GLOBAL word* data,
                                                word packets,
                                                unsigned service,
                                                unsigned rounding)
{
    CONSTANT char* const hidden = __builtin_amdgcn_implicitarg_ptr();
    GLOBAL struct buffer* const buffer =
        (GLOBAL struct buffer*)*(CONSTANT word*)(hidden + HOSTCALL_BUFFER);
    const unsigned lane = __builtin_amdgcn_workitem_id_x();
    word number         = 0;
    __builtin_amdgcn_s_setreg(ROUNDING, rounding);
    for(word n = 0; n < packets; ++n)
    {
        GLOBAL word* const mine = data + (n * LANES + lane) * WORDS;
        if(mine[0] == ~0ul)
            continue;
        // No other wave is there.
        const word packet            = buffer->free;
        GLOBAL struct header* header = buffer->headers + (packet & buffer->mask);
        GLOBAL word* payload = buffer->payloads + ((packet & buffer->mask) * LANES + lane) * WORDS;
        buffer->free         = header->next;
        for(int i = 0; i < WORDS; ++i)
            payload[i] = mine[i];
        payload[0]      = mine[0] | number;
        header->active  = __builtin_amdgcn_read_exec();
        header->service = service;
        header->control = 1;
        header->next    = 0;
        buffer->ready   = packet;
        __builtin_amdgcn_s_sendmsg(1, 0);
        GLOBAL word* const answer = data + packets * LANES * WORDS + (n * LANES + lane) * 2;
        answer[0]                 = payload[0];
        answer[1]                 = header->control == 0 ? payload[1] : ~0ul;
        number                    = payload[0] & ~(word)(NUMBER - 1);
        header->next              = buffer->free;
        buffer->free              = packet + buffer->mask + 1;
    }
}
