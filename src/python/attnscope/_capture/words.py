"""Names of torch functions by what they do, and patterns that tell attention by its name."""

import re

# Names of torch functions, without the underscores around them: add, add_ and __add__ are one.
SOFTMAX = {"softmax", "special_softmax", "safe_softmax"}
FUSED = {"scaled_dot_product_" + kernel for kernel in (
    "attention", "flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention",
    "attention_math", "fused_attention_overrideable")}
PRODUCT = {"matmul", "rmatmul", "bmm", "baddbmm", "addbmm", "mm", "addmm", "einsum"}
WEIGHTED = {"linear", "bilinear", "conv1d", "conv2d", "conv3d", "embedding"}
NORMS = {"layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm"}
# Reading an attribute or a size makes no tensor that matters here, and happens more often than anything else.
SILENT = {"get", "set", "size", "dim", "stride", "numel", "is_contiguous", "item", "len", "bool", "is_floating_point",
          "format", "repr", "tolist", "data_ptr", "backward", "register_hook"}
VIEWS = {"to", "type", "type_as", "float", "half", "bfloat16", "double", "view", "view_as", "reshape", "contiguous", "clone",
         "detach", "unflatten", "flatten", "requires_grad", "transpose", "swapaxes", "swapdims", "permute", "movedim",
         "moveaxis", "t", "T", "mT", "H", "mH", "data", "unsqueeze", "squeeze", "expand", "expand_as", "cpu", "cuda"}
# Functions that draw random numbers; what those of CHOICES draw may be indices. KEPT_CHOICES give indices again, CHOSEN look
# something up by them, and ASIDE read nothing of them.
CHOICES = {"randint", "randperm", "multinomial"}
DRAWS = CHOICES | {
    "randint_like", "random", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout", "alpha_dropout",
    "feature_alpha_dropout", "native_dropout", "bernoulli", "rand", "rand_like", "randn", "randn_like", "normal", "uniform",
    "exponential", "poisson", "rrelu", "gumbel_softmax", "log_normal", "cauchy", "geometric"}
KEPT_CHOICES = VIEWS | {"getitem", "sort", "unique", "cat", "stack", "add", "radd", "repeat"}
CHOSEN = {"getitem", "index_select", "gather", "take", "take_along_dim"}
ASIDE = SILENT - {"item", "bool", "tolist", "data_ptr"}
REDUCTIONS = {"max", "min", "amax", "amin", "sum", "mean", "logsumexp", "norm", "argmax", "any", "all", "topk", "kthvalue"}
COMPARISONS = {"gt", "lt", "ge", "le", "eq", "ne", "isnan", "isinf", "isfinite", "greater", "less", "new_zeros", "new_ones",
               "new_full", "new_empty", "zeros_like", "ones_like", "full_like", "empty_like"}
# After these, scores are still scores; anything else begins to make a pattern of them.
SCORE_STEPS = VIEWS | {"mul", "div", "true_divide", "rdiv", "rtruediv", "multiply", "divide", "add", "sub", "rsub", "subtract",
                       "neg", "masked_fill", "where", "tanh", "setitem", "copy", "fill", "nan_to_num", "maximum", "minimum",
                       "max", "min", "addcmul", "masked_scatter", "gather", "roll", "pad", "cat", "concat", "tril", "triu",
                       "clamp", "clip", "getitem", "narrow", "split", "chunk", "select", "index_select", "repeat",
                       "repeat_interleave", "lerp", "stack", "as_strided", "index_put", "index_fill"}
ADDITIONS = {"add", "radd", "iadd"}
SUBTRACTIONS = {"sub", "isub", "subtract"}
FACTORS = {"mul", "rmul", "imul", "multiply", "div", "true_divide", "truediv", "itruediv", "divide"}
SHIFTS = {"sub", "rsub", "log_softmax", "special_log_softmax"}
ATTENTION = re.compile(r"attn|attention|mha$", re.IGNORECASE)
KERNEL = re.compile(r"attention|attn|flash|fmha", re.IGNORECASE)
CROSS = re.compile(r"cross|enc_?dec|encoder_(attn|attention)|encoder_?decoder_?(attn|attention)|enc_attn|src_attn|context_attn", re.IGNORECASE)
# Arguments that are masks; of padding, of heads or of another sequence, which says nothing of later positions.
MASK = re.compile(r"mask", re.IGNORECASE)
OTHER_MASK = re.compile(r"^(decoder_)?attention_mask$|head|pad|cross|memory|src|source|enc|label|loss|position", re.IGNORECASE)
