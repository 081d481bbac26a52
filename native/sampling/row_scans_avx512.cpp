#define PACELINE_ISA avx512
#include "sampling/row_scans_template.hpp"
