/* SPDX-License-Identifier: MIT */
/* MRT_API marks what the shared library exports; everything else is hidden. */
#ifndef MARTLET_EXPORT_H
#define MARTLET_EXPORT_H

#define MRT_API __attribute__((visibility("default")))

#endif
