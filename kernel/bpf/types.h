/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Integers by the names that the kernel gives them, for every program here. */
#pragma once

typedef unsigned char u8, __u8;
typedef unsigned short u16, __u16, __be16, __sum16;
typedef int s32, __s32;
typedef unsigned int u32, __u32, __be32, __wsum;
typedef long long s64, __s64;
typedef unsigned long long u64, __u64;
#include <stdbool.h>
