#include "xts.h"
