// Philox 4x32 with ten rounds (Salmon et al., 2011): the same integers as the CPU's.

struct Words {
    u32 word[4];
};

static __device__ __forceinline__ Words philox(u32 key0, u32 key1, u32 c0, u32 c1, u32 c2, u32 c3) {
    for (int round = 0; round < 10; round++) {
        u64 a = (u64)c0 * 0xD2511F53u;
        u64 b = (u64)c2 * 0xCD9E8D57u;
        c0 = (u32)(b >> 32) ^ c1 ^ key0;
        c1 = (u32)b;
        c2 = (u32)(a >> 32) ^ c3 ^ key1;
        c3 = (u32)a;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    Words words;
    words.word[0] = c0;
    words.word[1] = c1;
    words.word[2] = c2;
    words.word[3] = c3;
    return words;
}
