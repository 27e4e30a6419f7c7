// All of the library.
#pragma once

#include "limber/client.hpp"  // IWYU pragma: export
#include "limber/core.hpp"    // IWYU pragma: export
#include "limber/errors.hpp"  // IWYU pragma: export
#include "limber/loop.hpp"    // IWYU pragma: export
