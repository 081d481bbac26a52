#define PACELINE_ISA avx2
#include "sampling/row_scans_template.hpp"
