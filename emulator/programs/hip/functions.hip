// Functions of the device library, f32 and f64, against the host's: exact ones to the bit, others
// in units of the last place against long double.
//
// functions COUNT [flush]: special operands, each with each, and COUNT random ones. A line for each
// function: its name, the number of operands, its greatest error and the bound, the wrong results,
// and the operands of the worst. `flush`: compiled with -fgpu-flush-denormals-to-zero, so that
// subnormal operands and results of f32 may be zeros.
#include "check.h"
#include "device_library.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

// The bounds of OpenCL C 3.0, "Relative Error as ULPs", which ROCm's library is written to. 0: the
// result is the correctly rounded one.
#define FUNCTION(NAME, BOUND, F32, F64, HOST)                                                \
    struct NAME                                                                              \
    {                                                                                        \
        static constexpr const char* TEXT = #NAME;                                           \
        static constexpr int ULPS         = BOUND;                                           \
        __device__ static float device(float a, [[maybe_unused]] float b) { return F32; }    \
        __device__ static double device(double a, [[maybe_unused]] double b) { return F64; } \
        template <typename T, typename Real>                                                 \
        static long double host(Real a, [[maybe_unused]] Real b)                             \
        {                                                                                    \
            return HOST;                                                                     \
        }                                                                                    \
    };
FUNCTION(Division, 0, a / b, a / b, T(a) / T(b))
FUNCTION(Root, 0, __builtin_sqrtf(a), __builtin_sqrt(a), std::sqrt(T(a)))
FUNCTION(Fmod, 0, __ocml_fmod_f32(a, b), __ocml_fmod_f64(a, b), std::fmod(T(a), T(b)))
FUNCTION(Exp, 3, __ocml_exp_f32(a), __ocml_exp_f64(a), std::exp(a))
FUNCTION(Log, 3, __ocml_log_f32(a), __ocml_log_f64(a), std::log(a))
FUNCTION(Sin, 4, __ocml_sin_f32(a), __ocml_sin_f64(a), std::sin(a))
FUNCTION(Pow, 16, __ocml_pow_f32(a, b), __ocml_pow_f64(a, b), std::pow(a, b))
FUNCTION(Gamma, 16, __ocml_tgamma_f32(a), __ocml_tgamma_f64(a), std::tgamma(a))

template <typename Function, typename T>
__global__ void apply(const T* a, const T* b, T* out, int count)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i < count)
        out[i] = Function::device(a[i], b[i]);
}

template <typename T>
using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
template <typename T>
using Limits = std::numeric_limits<T>;

template <typename T>
std::vector<T> special_values()
{
    std::vector<T> values = {0,
                             1,
                             2,
                             3,
                             T(0.5),
                             T(1.5),
                             T(0.1),
                             10,
                             T(20.5),
                             33,
                             T(88.7),
                             171,
                             700,
                             T(1e9 + 1),
                             T(1) + Limits<T>::epsilon(),
                             T(1) - Limits<T>::epsilon() / 2};
    for(const T x :
        {Limits<T>::denorm_min(), Limits<T>::denorm_min() * 3, Limits<T>::min(), Limits<T>::max()})
        values.insert(values.end(), {x, std::nextafter(x, T(1)), x * T(0.5)});
    values.insert(values.end(),
                  {Limits<T>::infinity(),
                   Limits<T>::quiet_NaN(),
                   std::scalbn(T(1), Limits<T>::max_exponent - 2)});
    const size_t count = values.size();
    for(size_t i = 0; i < count; ++i)
        values.push_back(-values[i]);
    return values;
}

// Bits of any number; numbers near 1; up to 200; quotients near the least and the greatest number.
template <typename T>
void random_values(size_t count, std::vector<T>& a, std::vector<T>& b)
{
    std::mt19937_64 random(18);
    std::uniform_real_distribution<T> small(-200, 200);
    const auto any      = [&] { return __builtin_bit_cast(T, static_cast<Bits<T>>(random())); };
    const auto near_one = [&] {
        return std::scalbn(any() > 0 ? T(1) + std::fabs(small(random)) : T(-1.5),
                           static_cast<int>(random() % 21) - 10);
    };
    for(size_t i = 0; i < count; ++i)
    {
        T x = any(), y = any();
        if(i % 4 == 1)
            x = near_one(), y = near_one();
        if(i % 4 == 2)
            x = small(random), y = small(random);
        if(i % 4 == 3)
        {
            const int power =
                random() % 2 ? Limits<T>::min_exponent - 1 : Limits<T>::max_exponent - 1;
            int exponent;
            const T mantissa = std::frexp(x, &exponent);
            std::frexp(y, &exponent);
            x = std::scalbn(mantissa, exponent + power + static_cast<int>(random() % 51) - 25);
        }
        a.push_back(x);
        b.push_back(y);
    }
}

// Infinity is what follows the greatest number.
template <typename T>
long double finite(long double x)
{
    const long double beyond = std::scalbn(1.0L, Limits<T>::max_exponent);
    return std::fabs(x) > beyond ? std::copysign(beyond, x) : x;
}

// The distance of a result in units of the expected one's last place.
template <typename T>
double error(T result, long double expected, bool exact)
{
    if(std::isnan(expected) || std::isnan(result))
        return std::isnan(expected) && std::isnan(result) ? 0 : INFINITY;
    if(exact)
        return __builtin_bit_cast(Bits<T>, result) ==
                       __builtin_bit_cast(Bits<T>, static_cast<T>(expected))
                   ? 0
                   : INFINITY;
    const long double want = finite<T>(expected), got = finite<T>(result);
    if(want == 0 || got == want)
        return got == want ? 0 : INFINITY;
    const int exponent = std::max(std::ilogb(want), Limits<T>::min_exponent - 1);
    return std::fabs(got - want) / std::scalbn(1.0L, exponent - Limits<T>::digits + 1);
}

template <typename T>
T flushed(T x)
{
    return std::fabs(x) < Limits<T>::min() ? std::copysign(T(0), x) : x;
}

// A flushed result may be one that its error makes subnormal.
template <typename Function, typename T>
double error_of(T a, T b, T result, bool flush)
{
    // Exact functions round once, by themselves.
    using Real                 = std::conditional_t<Function::ULPS == 0, T, long double>;
    const long double expected = Function::template host<T, Real>(a, b);
    const bool tiny =
        std::fabs(expected) * (1 - Function::ULPS * Limits<T>::epsilon()) < Limits<T>::min();
    return flush && tiny && result == 0 ? 0 : error(result, expected, Function::ULPS == 0);
}

template <typename Function, typename T>
double least_error(T a, T b, T result, bool flush)
{
    double least = error_of<Function>(a, b, result, flush);
    if(flush)
        for(const T x : {a, flushed(a)})
            for(const T y : {b, flushed(b)})
                least = std::min(least, error_of<Function>(x, y, result, flush));
    return least;
}

template <typename Function, typename T>
int compare(size_t count, bool flush)
{
    std::vector<T> a, b;
    for(const T x : special_values<T>())
        for(const T y : special_values<T>())
            a.push_back(x), b.push_back(y);
    random_values(count, a, b);
    const size_t bytes = a.size() * sizeof(T);
    T *left, *right, *out;
    for(T** buffer : {&left, &right, &out})
        HIP_CHECK(hipMalloc(reinterpret_cast<void**>(buffer), bytes));
    HIP_CHECK(hipMemcpy(left, a.data(), bytes, hipMemcpyHostToDevice));
    HIP_CHECK(hipMemcpy(right, b.data(), bytes, hipMemcpyHostToDevice));
    apply<Function, T><<<dim3((a.size() + 255) / 256), dim3(256)>>>(left, right, out, a.size());
    std::vector<T> results(a.size());
    HIP_CHECK(hipMemcpy(results.data(), out, bytes, hipMemcpyDeviceToHost));
    double worst = -1;
    size_t at = 0, wrong = 0;
    for(size_t i = 0; i < a.size(); ++i)
    {
        const double off = least_error<Function>(a[i], b[i], results[i], flush && sizeof(T) == 4);
        wrong += off > Function::ULPS;
        if(off > worst)
            worst = off, at = i;
    }
    std::printf("%s f%zu: %zu operands, error %.2f of %d, %zu wrong; %a, %a gives %a\n",
                Function::TEXT,
                8 * sizeof(T),
                a.size(),
                worst,
                Function::ULPS,
                wrong,
                a[at],
                b[at],
                results[at]);
    for(T* buffer : {left, right, out})
        HIP_CHECK(hipFree(buffer));
    return wrong != 0;
}

template <typename... Functions>
int compare_all(size_t count, bool flush)
{
    return ((compare<Functions, float>(count, flush) | compare<Functions, double>(count, flush)) |
            ...);
}

int main(int arguments, char** values)
{
    const size_t count = std::strtoull(values[1], nullptr, 10);
    return compare_all<Division, Root, Fmod, Exp, Log, Sin, Pow, Gamma>(count, arguments > 2);
}
