#include "segment.h"
