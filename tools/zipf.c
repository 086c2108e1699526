/* SPDX-License-Identifier: MIT */
/*
 * Rejection-inversion sampling (W. Hoermann, G. Derflinger, "Rejection-inversion to generate variates from monotone
 * discrete distributions", ACM TOMACS 6, 1996): constant time and memory for any n and theta, about one pow() a draw.
 * A table of n sums or aliases would cost a cache miss a draw and memory in proportion to the device.
 *
 * The hat is x^-theta, its integral H(x) = (x^(1-theta) - 1) / (1 - theta), which becomes log x as theta goes to 1;
 * expm1 and log1p keep it exact there, so theta = 1 needs no case of its own.
 */
#include "zipf.h"

#include <math.h>

#include "rng.h"

/* (e^x - 1) / x and log(1 + x) / x, both 1 at 0. */
static double expm1_over(double x)
{
	return fabs(x) > 1e-8 ? expm1(x) / x : 1 + x / 2;
}

static double log1p_over(double x)
{
	return fabs(x) > 1e-8 ? log1p(x) / x : 1 - x / 2;
}

static double hat(double x, double theta)
{
	return exp(-theta * log(x));
}

static double integral(double x, double theta)
{
	double l = log(x);

	return expm1_over((1 - theta) * l) * l;
}

static double integral_inverse(double y, double theta)
{
	double t = y * (1 - theta);

	if (t < -1)
		t = -1;         /* rounding at the far end for theta > 1 */
	return exp(log1p_over(t) * y);
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t r = a % b;

		a = b;
		b = r;
	}
	return a;
}

/* A multiplier near the golden section of n spreads consecutive ranks far apart; coprime makes it a bijection. */
static uint64_t pick_multiplier(uint64_t n)
{
	uint64_t mul = (uint64_t)((double)n * 0.6180339887498949);

	if (mul == 0)
		mul = 1;
	while (gcd(mul, n) != 1)
		mul++;
	return mul;
}

void zipf_init(struct zipf *z, uint64_t n, double theta, uint64_t seed)
{
	z->n = n;
	z->theta = theta;
	z->h_first = integral(1.5, theta) - 1;
	z->h_last = integral((double)n + 0.5, theta);
	z->squeeze = 2 - integral_inverse(integral(2.5, theta) - hat(2, theta), theta);
	z->mul = pick_multiplier(n);
	z->add = rng_seed(seed) % n;
}

uint64_t zipf_rank(const struct zipf *z, uint64_t *rng)
{
	for (;;) {
		double u = z->h_last + rng_unit(rng) * (z->h_first - z->h_last);
		double x = integral_inverse(u, z->theta);
		double k = floor(x + 0.5);

		if (k < 1)
			k = 1;
		else if (k > (double)z->n)
			k = (double)z->n;
		if (k - x <= z->squeeze || u >= integral(k + 0.5, z->theta) - hat(k, z->theta))
			return (uint64_t)k;
	}
}

uint64_t zipf_next(const struct zipf *z, uint64_t *rng)
{
	unsigned __int128 product = (unsigned __int128)zipf_rank(z, rng) * z->mul;

	return (uint64_t)((product + z->add) % z->n);
}
